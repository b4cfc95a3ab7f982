"""74: the baseline with float32 products."""

import inspect
from dataclasses import replace

from pkb.problems import get

BASELINE = get(74).baseline
assert BASELINE is not None
PROBLEM = replace(get(74), id=7401, name="float32_products", baseline=inspect.unwrap(BASELINE))
