"""The watch over torch's own symmetric memory, on a class of the same form; no GPU is needed to see what it counts.

The fake's members are those that torch's class has, kept in the same kinds of attribute (static methods, methods,
properties), over one rank's ordinary memory.
"""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pkb.rank.symmetric import watch as symmetric_watch


def fake_module(*, closed: bool = False) -> Any:
    class Meta(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            if closed:
                raise TypeError("cannot set attributes of built-in type")
            super().__setattr__(name, value)

    class _SymmetricMemory(metaclass=Meta):
        rank, world_size, signal_pad_size = 0, 2, 64

        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor, self.buffer_size = tensor, tensor.numel() * tensor.element_size()
            self.pad = torch.zeros(16, dtype=torch.int32)
            self.calls: list[Any] = []

        @staticmethod
        def empty_strided_p2p(size: Any, stride: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype)

        @staticmethod
        def rendezvous(tensor: torch.Tensor, group_name: str | None = None) -> Any:
            return _SymmetricMemory(tensor) if tensor.numel() else None

        @property
        def buffer_ptrs(self) -> list[int]:
            return [self.tensor.data_ptr()] * 2

        @property
        def multicast_ptr(self) -> int:
            return 0

        def get_buffer(self, rank: int, sizes: Any, dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
            return self.tensor.view(-1)[: torch.Size(sizes).numel()].view(dtype)

        def get_signal_pad(
            self, rank: int, sizes: Any = (), dtype: Any = None, storage_offset: int = 0
        ) -> torch.Tensor:
            return self.pad

        def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
            self.calls.append(("barrier", channel, timeout_ms))

        def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
            self.calls.append(("put_signal", dst_rank, channel, timeout_ms))

    module = SimpleNamespace(_SymmetricMemory=_SymmetricMemory)
    module.empty = lambda *size, dtype: module._SymmetricMemory.empty_strided_p2p(size, None, dtype, "cpu")
    module.rendezvous = lambda tensor, group: module._SymmetricMemory.rendezvous(tensor, group)
    return module


@pytest.fixture
def activity(monkeypatch: pytest.MonkeyPatch) -> symmetric_watch.SymmetricActivity:
    fresh = symmetric_watch.SymmetricActivity()
    monkeypatch.setattr(symmetric_watch, "ACTIVITY", fresh)
    return fresh


def test_calls_are_counted_told_and_passed_on(activity: symmetric_watch.SymmetricActivity) -> None:
    module = fake_module()
    own = module.rendezvous(torch.zeros(4), "0")  # the harness's, from before
    assert symmetric_watch.watch(module) == []
    assert symmetric_watch.watch(module) == [], "a second watch must not count twice"
    told: list[str | None] = []
    activity.on_wait = told.append
    handle = module.rendezvous(module.empty(4, dtype=torch.float32), "0")
    own.barrier()
    handle.barrier(channel=3)
    handle.put_signal(1, channel=2, timeout_ms=9)
    assert handle.get_buffer(0, (4,), torch.float32).numel() == 4
    assert activity.peer_accesses == 0
    assert handle.multicast_ptr == 0
    assert activity.peer_accesses == 0, "no multicast, no way to a peer"
    handle.get_buffer(1, (4,), torch.float32)
    assert len(handle.buffer_ptrs) == 2
    assert handle.calls == [("barrier", 3, 0), ("put_signal", 1, 2, 9)]
    assert (activity.peer_accesses, activity.library_reductions) == (2, 0)
    assert told == [
        "rendezvous", None, "barrier(channel=3) of rank 0", "put_signal(channel=2) of rank 0 to rank 1",
    ]  # fmt: skip
    assert module.rendezvous(module.empty(0, dtype=torch.float32), "0") is None


def test_poison_finds_what_is_alive_and_keeps_nothing_alive(activity: symmetric_watch.SymmetricActivity) -> None:
    module = fake_module()
    symmetric_watch.watch(module)
    floats, flags = module.empty(4, dtype=torch.float16), module.empty(4, dtype=torch.int32)
    handle = module.rendezvous(module.empty(6, dtype=torch.float32), "0")  # its tensor is dropped by the caller
    floats.fill_(1), handle.tensor.fill_(-1e-30)  # zeros stay: they may be flags
    assert symmetric_watch.poison() == 4 * 2 + 6 * 4
    assert floats.isnan().all()
    assert handle.tensor.isnan().all()
    assert flags.tolist() == [0] * 4
    assert activity.peer_accesses == 0, "the judge's own looks do not count"
    alive = weakref.ref(handle)
    del handle, floats, flags
    gc.collect()
    assert alive() is None
    assert symmetric_watch.poison() == 0


def test_a_class_that_cannot_be_changed_is_watched_through_its_module(
    activity: symmetric_watch.SymmetricActivity,
) -> None:
    module = fake_module(closed=True)
    refused = symmetric_watch.watch(module)
    assert {"barrier", "rendezvous", "empty_strided_p2p"} <= set(refused)
    told: list[str | None] = []
    activity.on_wait = told.append
    tensor = module.empty(4, dtype=torch.float32)
    module.rendezvous(tensor, "0")
    assert told == ["rendezvous", None]
    assert symmetric_watch.poison() == tensor.nbytes


MOVE_NOTHING = (
    "_async_input_mm", "_barrier", "_rendezvous", "get_remote_tensors", "memset32_", "nccl_wait_for_signal",
    "nccl_wait_signal", "nvshmem_wait_for_signal", "stream_write_value32_",
)  # fmt: skip
"""Torch's other operators on symmetric memory: they set up, wait, signal or compute."""


def test_every_operator_of_torch_on_symmetric_memory_counts_or_moves_nothing() -> None:
    """A torch that has learned another one does not hand it out as a candidate's own kernel."""
    import torch.distributed._symmetric_memory  # declares some of them

    every = {name.removeprefix("symm_mem::").partition(".")[0] for name in torch._C._dispatch_get_all_op_names()
             if name.startswith("symm_mem::")}  # fmt: skip
    assert every
    known = {*symmetric_watch.LIBRARY_OPERATORS, *MOVE_NOTHING}
    assert not every - known, "neither counted nor known to move nothing"


def test_memory_of_a_peer_is_told_from_ones_own(activity: symmetric_watch.SymmetricActivity) -> None:
    module = fake_module()
    symmetric_watch.watch(module)
    theirs = torch.zeros(8)
    module._SymmetricMemory.buffer_ptrs = property(lambda self: [self.tensor.data_ptr(), theirs.data_ptr()])
    handle = module.rendezvous(module.empty(8, dtype=torch.float32), "0")
    assert symmetric_watch.is_a_peers(theirs[3:])
    assert not symmetric_watch.is_a_peers(handle.tensor[3:])
    assert not symmetric_watch.is_a_peers(torch.zeros(8))
    assert activity.peer_accesses == 0, "the judge's own looks do not count"


def test_memory_of_a_peer_is_known_though_nobody_keeps_the_handle(activity: symmetric_watch.SymmetricActivity) -> None:
    """As in a call that meets its peers, takes the address of one and forgets the rest."""
    module = fake_module()
    symmetric_watch.watch(module)
    theirs = torch.zeros(8)
    module._SymmetricMemory.buffer_ptrs = property(lambda self: [self.tensor.data_ptr(), theirs.data_ptr()])
    tensor = module.empty(8, dtype=torch.float32)
    for _ in range(2):  # the second time with a handle of its own, as torch hands it out
        module.rendezvous(tensor, "0")
    gc.collect()
    assert symmetric_watch.is_a_peers(theirs[3:])
    assert not symmetric_watch.is_a_peers(tensor[3:])
    assert activity.peer_accesses == 0, "the judge's own looks do not count"
    of_another_group = torch.zeros(8)
    module._SymmetricMemory.buffer_ptrs = property(lambda self: [self.tensor.data_ptr(), of_another_group.data_ptr()])
    module.rendezvous(tensor, "1")
    assert symmetric_watch.is_a_peers(of_another_group)
    assert symmetric_watch.is_a_peers(theirs)
    del tensor
    gc.collect()
    assert not symmetric_watch.is_a_peers(theirs), "unmapped with it: the address may be this rank's own by now"


def test_symmetric_memory_without_addresses_is_nobodys(activity: symmetric_watch.SymmetricActivity) -> None:
    def refuses(self: object) -> list[int]:
        raise RuntimeError("not supported")

    module = fake_module()
    module._SymmetricMemory.buffer_ptrs = property(refuses)
    symmetric_watch.watch(module)
    tensor = module.empty(8, dtype=torch.float32)
    handle = module.rendezvous(tensor, "0")
    assert handle.tensor is tensor
    assert not symmetric_watch.is_a_peers(tensor)
