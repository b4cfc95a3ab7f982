"""Gives the tests of harness.ModelTests the cases that the problem's file declares."""

import pytest
import torch
from harness import ModelTests


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is None or not issubclass(metafunc.cls, ModelTests):
        return
    spec, wanted = metafunc.cls.spec, set(metafunc.fixturenames)
    if "mistake" in wanted:
        cases = [(name, *case) for name in spec.mistakes for case in spec.mistake_cases]
        metafunc.parametrize(("mistake", "world_size", "size", "dtype"), cases)
    elif "world_size" in wanted:
        metafunc.parametrize(("world_size", "size", "dtype"), spec.cases)
    elif "widened_size" in wanted:
        metafunc.parametrize("widened_size", spec.widened_sizes)
    elif "refused" in wanted:
        metafunc.parametrize("refused", range(len(spec.refused)), ids=[pattern for pattern, _ in spec.refused])


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small tensors on a busy machine: threads that wait for each other cost more than they bring."""
    torch.set_num_threads(1)
