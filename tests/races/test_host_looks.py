"""What the host looks at counts as a peer's only where it is one's: by the memory that holds it, as long as it does."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from pkb.rank.emulate.races import looks, operations


@pytest.fixture
def of_a_peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.Tensor]:
    """Symmetric memory whose values are no flags."""
    tensor = torch.zeros(8)
    monkeypatch.setitem(operations.symmetric, tensor.data_ptr(), tensor.untyped_storage().nbytes())
    looks.forget()
    yield tensor
    looks.forget()


def test_what_was_made_of_a_peers_values_is_a_peers(of_a_peer: torch.Tensor) -> None:
    made = of_a_peer + 1
    looks.followed([of_a_peer], [made], host=False)
    assert not looks.unknown()
    looks.followed([made[:1]], [], host=True)
    assert looks.unknown()


def test_and_so_is_the_same_memory_by_another_way(of_a_peer: torch.Tensor) -> None:
    made = of_a_peer + 1
    looks.followed([of_a_peer], [made], host=False)
    looks.followed([torch.from_numpy(made.numpy())], [], host=True)
    assert looks.unknown()


def test_memory_that_was_given_back_is_nobodys(of_a_peer: torch.Tensor) -> None:
    """As the arguments of a later call, which no operator of the candidate's has made, may lie where a sum has lain."""
    memory = bytearray(64)
    made = torch.frombuffer(memory, dtype=torch.float32)
    looks.followed([of_a_peer], [made], host=False)
    del made
    argument = torch.frombuffer(memory, dtype=torch.float32)
    looks.followed([argument], [], host=True)
    assert not looks.unknown()


def test_storages_that_are_gone_are_dropped(of_a_peer: torch.Tensor) -> None:
    memory = [bytearray(64) for _ in range(1000)]  # held, so that no address comes twice
    for one in memory:
        looks.followed([of_a_peer], [torch.frombuffer(one, dtype=torch.float32)], host=False)
    assert len(looks._from_peers) <= looks._MANY + 1


def test_the_compiler_of_torch_can_be_imported_while_calls_are_recorded() -> None:
    """A candidate's file may be what imports it, and it holds signatures against each other."""
    text = "from pkb.rank.emulate.races.operators import make_subclasses_outside as make; make(); import torch._dynamo"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=300)
