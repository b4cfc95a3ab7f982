"""The fixture by which tests run kernels, and where this folder's modules find the ranks of tests/cpu."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cpu"))

from ranks import Pools, Run

from pkb.kit.emulated.gxx import find_gxx


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    if isinstance(find_gxx(), str):
        pytest.skip(str(find_gxx()))
    pools = Pools(tmp_path_factory.mktemp)
    yield pools.run
    pools.close()
