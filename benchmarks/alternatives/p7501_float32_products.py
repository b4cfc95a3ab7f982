"""75: the baseline with float32 products."""

import inspect
from dataclasses import replace

from pkb.problems import get

BASELINE = get(75).baseline
assert BASELINE is not None
PROBLEM = replace(get(75), id=7501, name="float32_products", baseline=inspect.unwrap(BASELINE))
