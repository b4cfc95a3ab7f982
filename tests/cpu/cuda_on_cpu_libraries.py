"""Run by test_cuda_on_cpu_device.py in a process of its own: the emulated GPU replaces parts of torch. Prints what is wrong."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from pkb.kit.emulated.analyse import analyse, make_files
from pkb.rank.devices import CpuDevice
from pkb.rank.emulate import aliases, recorder
from pkb.rank.emulate.cuda import wanted
from pkb.rank.emulate.cuda.device import NotEmulatedHere

ASKS = 'compile_cuda_extension, device.type == "cuda"'


def check(name: str, *, right: bool) -> None:
    if not right:
        print(f"wrong: {name}", flush=True)


def raced(work: Callable[[], object]) -> set[str]:
    """Kinds of races in what a function does."""
    shared, logs = make_files(1)
    recorder.begin(shared, logs[0], rank=0, world=1)
    work()
    torch.cuda.synchronize()
    recorder.end()
    result = analyse(logs)
    check("the log of accesses is whole", right=not result["broken"] and result["events"] > 0)
    return {finding["kind"] for finding in result["findings"]}


def main() -> None:
    store = dist.FileStore(tempfile.mktemp(), 1)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    aliases.install("cpu", shares_device=True, rank=0, source=ASKS)
    wanted.install(CpuDevice(), ASKS)
    from pkb.kit.extension import compile_cuda_extension

    module = compile_cuda_extension("libraries", Path(__file__).with_suffix(".cu").read_text())

    x = torch.rand(384)
    sums, before, total, warps = torch.empty(6), torch.empty(384), torch.empty(384), torch.empty(12)
    racy = raced(lambda: module.block_functions(x, sums, before, total, warps, False))
    check("storage of cub that is used again without a barrier is a race", right=racy == {"no_synchronisation"})
    found = raced(lambda: module.block_functions(x, sums, before, total, warps, True))
    rows = x.view(3, 128)
    check("cub: sum of a block", right=torch.allclose(sums[::2], rows.sum(1)))
    check("cub: largest of a block", right=torch.equal(sums[1::2], rows.max(1).values))
    check("cub: sums before a thread", right=torch.allclose(before.view(3, 128), rows.cumsum(1) - rows, atol=1e-4))
    check("cub: sum that comes with them", right=torch.allclose(total.view(3, 128)[:, 5], rows.sum(1)))
    check("cub: sum of a warp", right=torch.allclose(warps, x.view(12, 32).sum(1)))

    keys = torch.randn(500).round(decimals=1)
    keys[:3] = torch.tensor([0.0, -0.0, -float("inf")])
    values, moved, ordered, total = (
        torch.arange(500),
        torch.zeros(500, dtype=torch.int64),
        torch.zeros(500),
        torch.zeros(1),
    )
    late = []
    for _ in range(5):  # a host that is slow finds it done
        module.sorts(keys, ordered, values, moved.zero_(), total, False)
        late.append(not moved.any())
        torch.cuda.synchronize()
    check("cub: a function of a whole array is late on a stream that nobody joins", right=any(late))
    module.sorts(keys, ordered, values, moved, total, True)
    expected = keys.sort(descending=True, stable=True)
    check("cub: pairs sorted by bits, stable", right=torch.equal(moved, expected.indices))
    check("cub: keys sorted", right=torch.equal(ordered, expected.values))
    check("cub: sum of an array", right=bool(torch.isinf(total).all()))

    flags, kept, offsets = (
        torch.rand(500) > 0.5,
        torch.zeros(500, dtype=torch.int64),
        torch.zeros(500, dtype=torch.int64),
    )
    count = module.selects(values, flags, kept, offsets)
    check("cub: selected, and thrust: sorted downwards", right=torch.equal(kept[:count], values[flags].flip(0)))
    check("thrust: exclusive scan", right=torch.equal(offsets, values.cumsum(0) - values))

    out = torch.zeros(1, dtype=torch.int32)
    check("shared memory above 48 KB has to be allowed", right=module.shared_limit(out, 60 << 10) == [1, 0, 0, 1])
    out = torch.zeros(1, dtype=torch.int32)
    check("shared memory of 48 KB has not", right=module.shared_limit(out, 48 << 10)[:2] == [0, 1])
    out = torch.zeros(1, dtype=torch.int32)
    check("and above 227 KB it is refused", right=module.shared_limit(out, (227 << 10) + 1) == [1, 0, 1, 0])

    lanes, numbers = torch.zeros(192, dtype=torch.int32), torch.randint(-5, 5, (64,), dtype=torch.int32)
    found |= raced(lambda: module.meetings(lanes, numbers))
    thirds = [sum(1 << i % 32 for i in range(w, w + 32) if i % 3 == 0) for w in (0, 32)]
    positive = [int(numbers[w : w + 32].clamp(min=0).sum()) for w in (0, 32)]
    check("all lanes are active where none has gone another way", right=bool(lanes[:64].eq(-1).all()))
    check(
        "and of those that have, the ones that have",
        right=all(int(lanes[64 + i]) & 0xFFFFFFFF == (thirds[i // 32] if i % 3 == 0 else 0) for i in range(64)),
    )
    check(
        "a group of those that are active",
        right=all(lanes[128 + i].item() == (positive[i // 32] if numbers[i] > 0 else 0) for i in range(64)),
    )

    source = torch.empty(68).uniform_(1, 2)
    aligned, target = source[(-(source.data_ptr() // 4)) % 4 :][:64], torch.zeros(96)
    room = target[(-(target.data_ptr() // 4)) % 4 :]
    found |= raced(lambda: module.bulk_copies(aligned, room, 1))
    check("a bulk copy that was waited for", right=torch.equal(room[:64], 2 * aligned))
    check("arrives no earlier", right=room[64].item() == -1.0)
    check("a bulk store is late", right=room[65].item() == 0.0 and room[66].item() == 2 * aligned[0].item())
    module.bulk_copies(aligned, room, 0)
    check("a bulk copy that nobody waits for has not arrived", right=torch.equal(room[:64], torch.full((64,), -2.0)))

    found |= raced(lambda: module.graphs(torch.zeros(32), 3))
    check("none of these races", right=not found)
    runs = [module.graphs(torch.zeros(32), 3) for _ in range(5)]
    check("a graph runs as often as it is launched", right=all(run[2:] == [33, 33] and run[0] == 0 for run in runs))
    check("and late, unless the host is slow", right=any(run[1] == 0 for run in runs))

    a, b, c = torch.randn(5, 7).bfloat16(), torch.randn(7, 3).bfloat16(), torch.empty(5, 3)
    board, lines = torch.zeros(3, dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
    total, halves = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    kinds = raced(lambda: module.atomic_types(board, total, lines, halves, True))
    check(
        "libcu++: a lock, counters, a message", right=lines[[0, 3, 4]].tolist() == [992, 31, 1] and halves.item() == 32
    )
    check("libcu++: they order what they say", right=not kinds)
    kinds = raced(lambda: module.atomic_types(board.zero_(), total.zero_(), lines.zero_(), halves, False))
    check("libcu++: a lock that is given back without a release is a race", right=bool(kinds))

    module.product(a, b, c)
    check("a product of cuBLAS", right=torch.allclose(c, a.float() @ b.float(), atol=1e-5))

    check_devices(a)
    dist.destroy_process_group()
    print("done", flush=True)


def check_devices(tensor: torch.Tensor) -> None:
    device = tensor.device
    check("a tensor says that it is on the GPU", right=device.type == "cuda" and device == torch.device("cuda", 0))
    with torch.cuda.stream(torch.cuda.Stream()):
        check("on a side stream too", right=tensor.device.type == "cuda")
    made = torch.zeros(3, device=device)
    check("a device that is handed back to torch is the CPU", right=made.sum().item() == 0 and made.device == device)
    there = tensor.to(device), tensor.to(device=device, dtype=torch.float32), tensor.to("cuda")
    check("and so is one that tensors are moved to", right=all(torch.equal(tensor.float(), t.float()) for t in there))
    dist.all_reduce(made)
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            made.view(3, 1).add_(1)
        check("operators of torch are not captured", right=False)
    except NotEmulatedHere as what:
        check("and are named", right="torch.add_ in a CUDA graph" in str(what) and made.sum().item() == 0)


if __name__ == "__main__":
    os.environ.setdefault("PKB_EMULATOR_SEED", "7")
    print("seed", os.environ["PKB_EMULATOR_SEED"], file=sys.stderr)
    main()
