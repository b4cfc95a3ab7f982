"""The fixture by which tests run kernels, and where this folder's modules find the ranks of tests/cpu."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cpu"))

from emulate import why_not
from ranks import Pools, Run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    pools = Pools(tmp_path_factory.mktemp)
    yield pools.run
    pools.close()
