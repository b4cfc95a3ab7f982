"""Device aliases, each case in a rank of its own: what `install` changes stays changed for the life of a process."""

import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from world import World

USES_CUDA = 'x = torch.empty(3, device=f"cuda:{rank}")'
USES_NOTHING = "def solution(x):\n    return x.sum()"


@pytest.fixture
def one_rank() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


def pretend_cuda_build() -> None:
    """What torch's CUDA build says of itself on a machine without a GPU."""
    core: Any = torch._C
    core._cuda_getDeviceCount = getattr(core, "_cuda_getDeviceCount", lambda: 0)
    core._has_cuda = core._has_cudnn = True
    torch.version.cuda = "13.0"
    torch.distributed.distributed_c10d._NCCL_AVAILABLE = True


def on_cpu(rank: int, size: int) -> None:
    from pkb.rank.emulate import aliases

    real = torch.device
    before = torch.zeros(2)
    pretend_cuda_build()
    aliases.install("cpu", shares_device=True, rank=3, source=USES_CUDA)
    host = real("cpu")

    for device in ("cuda", "cuda:3", 3, torch.device("cuda:3"), torch.device("cuda", 3), real("cuda:1"), "cpu"):
        assert torch.empty(2, device=device).device == host, device
        assert before.to(device).device == host, device
        assert before.to(device=device, dtype=torch.int32).dtype == torch.int32
        assert torch.zeros_like(before, device=device).device == host
        assert before.new_empty(3, device=device).device == host
    assert torch.device(type="cuda", index=1) == host
    assert torch.device(1) == host
    assert before.cuda() is before
    assert before.cuda(1, non_blocking=True) is before
    assert torch.nn.Linear(2, 2).cuda().to("cuda:1").weight.device == host
    assert torch.empty(3, pin_memory=True).pin_memory().numel() == 3
    before.record_stream(torch.cuda.current_stream())
    with torch.device("cuda:2"):
        assert torch.ones(2).device == host

    # What stays as it was.
    assert torch.empty(2, device="meta").device.type == "meta"
    assert torch.device("meta").type == "meta"
    assert torch.device("cpu", 0).index == 0
    assert before.to(torch.float64).dtype == torch.float64
    assert before.to(torch.zeros(1, dtype=torch.int8)).dtype == torch.int8
    assert torch.cuda.is_available() is False
    assert torch.cuda.device_count() == 0
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        torch.cuda.get_device_properties(0)
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        torch.cuda.mem_get_info()
    assert torch.version.cuda is None
    assert not torch.backends.cuda.is_built()
    assert not torch.backends.cudnn.is_available()
    assert not torch.distributed.is_nccl_available()
    assert torch.accelerator.current_accelerator() is None
    assert torch.cuda.get_arch_list() == []
    torch.cuda.nvtx.range_push("part")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("part {}", 1):
        torch.cuda.nvtx.mark("here")


def passes_for_the_class(rank: int, size: int) -> bytes:
    from pkb.rank.emulate import aliases

    real = torch.device
    aliases.install("cpu", shares_device=True, rank=0, source=USES_CUDA)
    assert torch.device is not real
    assert isinstance(torch.zeros(1).device, torch.device)
    assert isinstance(torch.device("cuda"), real)
    assert isinstance(torch.device("cpu"), torch.device | None)
    assert not isinstance("cpu", torch.device)
    assert issubclass(real, torch.device)
    assert {real: 1}[torch.device] == 1

    @torch.library.custom_op("pkb_test::made_on", mutates_args=())
    def made_on(x: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
        return torch.ones(2, device=device)

    assert made_on(torch.zeros(1), device=torch.device("cuda:1")).sum() == 2
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    gathered: list[Any] = [None]
    dist.all_gather_object(gathered, {"device": torch.device("cuda:1")})
    assert gathered[0] == {"device": real("cpu")}
    assert init_device_mesh("cpu", (1,)).size() == 1
    copy = pickle.loads(pickle.dumps((torch.device, torch.zeros(1).device)))
    assert copy == (torch.device, real("cpu"))
    return pickle.dumps((torch.device, real("meta")))


def streams_and_events(rank: int, size: int) -> None:
    from pkb.rank.emulate import aliases

    aliases.install("cpu", shares_device=True, rank=2, source=USES_NOTHING)
    assert torch.cuda.current_device() == 2
    with torch.cuda.device("cuda:5"):
        assert torch.cuda.current_device() == 5
    torch.cuda.set_device(torch.device("cuda:1"))
    assert torch.cuda.current_device() == 1
    torch.cuda.synchronize(1)
    side, main = torch.cuda.Stream(device=1, priority=-1), torch.cuda.current_stream()
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() is side
        with main:
            assert torch.cuda.current_stream() is main
    assert torch.cuda.current_stream() is main is torch.cuda.default_stream()
    side.wait_stream(main)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    time.sleep(0.02)
    end.record(side)
    side.wait_event(end)
    assert end.query()
    assert 19 < start.elapsed_time(end) < 2000, "milliseconds"
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(side.record_event())


def nothing_without_need(rank: int, size: int) -> list[Any]:
    from torch.overrides import _get_current_function_mode_stack

    from pkb.rank.emulate import aliases

    real, real_event = torch.device, torch.cuda.Event
    seen: list[Any] = []
    aliases.install("cuda", shares_device=False, rank=1, source=USES_CUDA)
    seen.append((torch.device is real, torch.cuda.Event is real_event, len(_get_current_function_mode_stack())))
    aliases.install("cpu", shares_device=True, rank=1, source=USES_NOTHING)
    seen.append((torch.device is real, torch.cuda.Event is real_event, len(_get_current_function_mode_stack())))
    aliases.install("cpu", shares_device=True, rank=1, source=USES_CUDA)
    seen.append((torch.device is real, torch.cuda.Event is real_event, len(_get_current_function_mode_stack())))
    return seen


class Recorder(torch.overrides.TorchFunctionMode):
    """Entered before the aliases, it sees what they make of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if "device" not in kwargs and func is not torch.Tensor.cuda:
            return func(*args, **kwargs)  # making a device is a call of torch, too
        self.devices.append(str(kwargs["device"] if "device" in kwargs else args[1]))
        return None


def on_one_gpu(rank: int, size: int) -> tuple[list[str], list[Any]]:
    from pkb.rank.emulate import aliases

    set_to: list[Any] = []
    torch.cuda.set_device = set_to.append  # type: ignore[assignment]
    recorder = Recorder()
    recorder.__enter__()
    aliases.install("cuda", shares_device=True, rank=3, source=USES_CUDA)
    assert torch.device("cuda:3") == torch.device("cuda", 0) == torch.device("cuda", 2)
    assert torch.device("cuda").index is None
    assert torch.device("cpu").type == "cpu"
    for device in ("cuda:3", "cuda", 3, torch.device("cuda:2"), "cpu"):
        torch.empty(2, device=device)
    torch.Tensor.cuda(torch.Tensor(), 3)
    torch.cuda.set_device(3)
    torch.cuda.set_device("cuda:2")
    assert torch.cuda.device(3).idx == 0
    return recorder.devices, set_to


def uneven(rank: int, size: int) -> None:
    import torch.distributed as dist

    from pkb.rank.emulate import aliases

    aliases.install("cpu", shares_device=True, rank=rank, source=USES_NOTHING)
    # Rank 0 gives 1 and 2 rows, rank 1 gives 2 and 2: its own sizes are even.
    rows = [[1, 2], [2, 2]]
    given = [torch.full((n, 3), 10.0 * rank + to) for to, n in enumerate(rows[rank])]
    taken = [torch.empty(rows[source][rank], 3) for source in range(2)]
    dist.all_to_all(taken, given)
    assert [tensor.unique().tolist() for tensor in taken] == [[10.0 * source + rank] for source in range(2)]


def test_lists_of_uneven_tensors_go_all_to_all_without_nccl() -> None:
    world = World(2)
    try:
        world.call(uneven)
    finally:
        world.close()


def test_every_cuda_device_is_the_cpu(one_rank: World) -> None:
    one_rank.call(on_cpu)


def test_the_replaced_class_passes_for_torch_device(one_rank: World) -> None:
    (pickled,) = one_rank.call(passes_for_the_class)
    assert pickle.loads(pickled) == (torch.device, torch.device("meta")), "other processes read torch's own class"


def test_streams_and_events_without_a_gpu(one_rank: World) -> None:
    one_rank.call(streams_and_events)


def test_costs_nothing_where_nothing_is_asked_for(one_rank: World) -> None:
    assert one_rank.call(nothing_without_need) == [[(True, True, 0), (True, False, 0), (False, False, 1)]]


def test_all_ranks_of_the_virtual_platform_share_the_first_gpu(one_rank: World) -> None:
    ((devices, set_to),) = one_rank.call(on_one_gpu)
    assert devices[:5] == ["cuda:0", "cuda", "0", "cuda:0", "cpu"]
    assert devices[-1] == "0"
    assert set_to == [0, "cuda:0"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('x.to("cuda")', True),
        ("x.cuda()", True),
        ("torch.empty(3, device=f'cuda:{rank}')", True),
        ("torch.empty(3, device=local_rank)", True),
        ("x.to(rank)", True),
        ("torch.device(rank)", True),
        ("device=torch.cuda.current_device()", True),
        ("torch.empty(3, device=x.device)", False),
        ("torch.cuda.synchronize()", False),
        ("x.to(torch.float32)", False),
    ],
)
def test_which_texts_are_worth_the_mode(text: str, wanted: bool) -> None:
    from pkb.rank.emulate.aliases import NAMES_A_DEVICE

    assert bool(NAMES_A_DEVICE.search(text)) is wanted
