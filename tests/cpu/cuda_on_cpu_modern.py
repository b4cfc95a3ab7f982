"""Run by test_cuda_on_cpu_device.py in a process of its own: the emulated GPU replaces parts of torch. Prints what is wrong."""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from cuda_on_cpu_libraries import check, raced

from pkb.rank.devices import CpuDevice
from pkb.rank.emulate import aliases
from pkb.rank.emulate.cuda import wanted

ASKS = 'compile_cuda_extension, device.type == "cuda"'
GLUE = r"""
#include <torch/extension.h>
int64_t go(int64_t which, torch::Tensor in, torch::Tensor middle, torch::Tensor out, bool right) {
  return run((int)which, in.data_ptr<float>(), middle.data_ptr<float>(), out.data_ptr<float>(), right);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("go", &go); }
"""
TURNED, EXCHANGED = "each block's numbers, turned round", "those of the other block of its cluster"
UNORDERED = {"no_synchronisation"}
EITHER = {"no_synchronisation", "buffer_reused_too_early"}
UNHEARD = {"no_synchronisation", "relaxed_where_release_acquire_is_needed"}
"""Somebody has arrived at a barrier, and nobody has waited for it."""
WAYS = {
    0: ("cuda::pipeline of a thread", TURNED, 2, UNORDERED),
    1: ("cuda::pipeline of a block, consumer_wait", TURNED, 5, UNHEARD),
    2: ("cuda::pipeline of a block, producer_acquire", TURNED, 5, UNHEARD),
    3: ("cuda::pipeline in two roles", TURNED, 1, UNHEARD),
    4: ("cuda::barrier and its copies", TURNED, 1, UNHEARD),
    5: ("__pipeline_memcpy_async", TURNED, 1, UNORDERED),
    6: ("cooperative_groups::memcpy_async", TURNED, 2, UNORDERED),
    7: ("cp.async.mbarrier.arrive", TURNED, 1, UNHEARD),
    8: ("a test of an mbarrier that says no", TURNED, 1, UNHEARD),
    9: ("cluster.sync before shared memory is read", EXCHANGED, 1, UNORDERED),
    10: ("cluster.sync before a block ends", EXCHANGED, 1, EITHER),
    11: ("barrier.cluster.arrive and wait", EXCHANGED, 1, UNORDERED),
    12: ("an arrival at another block's mbarrier", EXCHANGED, 1, UNHEARD),
    13: ("cudaGridDependencySynchronize", TURNED, 1, UNORDERED),
}


def main() -> None:
    store = dist.FileStore(tempfile.mktemp(), 1)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    aliases.install("cpu", shares_device=True, rank=0, source=ASKS)
    wanted.install(CpuDevice(), ASKS)
    from pkb.kit.extension import compile_cuda_extension

    source = Path(__file__).with_suffix(".cu").read_text()
    module = compile_cuda_extension("modern", source + GLUE)
    x, middle, out = torch.rand(512), torch.empty(512), torch.empty(544)
    turned = x.view(4, 128).flip(1)
    expected = {TURNED: turned, EXCHANGED: turned[[1, 0, 3, 2]]}
    for which, (name, what, times, kinds) in WAYS.items():
        out.fill_(torch.nan)
        found = raced(lambda which=which: module.go(which, x, middle, out, True))  # type: ignore[misc]
        check(f"{name}: values", right=torch.allclose(out[:512].view(4, 128), times * expected[what]))
        check(f"{name}: no race, but {found}", right=not found)
        found = raced(lambda which=which: module.go(which, x, middle, out, False))  # type: ignore[misc]
        check(f"{name}: forgotten, and {found or 'no race'}", right=bool(found) and found <= kinds)

    module.go(14, x, middle, out, True)
    check("a copy to all blocks of a cluster", right=torch.equal(out[:512].view(4, 128), turned[[0, 0, 2, 2]]))
    module.go(15, x, middle, out, True)
    a = (torch.arange(256) % 7).float().view(16, 16)
    b = ((torch.arange(128) + 1) % 5).float().view(16, 8)
    for way, kind in enumerate(("m16n8k16 bf16", "m16n8k8 bf16", "m16n8k8 tf32", "m16n8k16 f16 into f16")):
        check(f"mma {kind}", right=torch.equal(out[way * 128 : way * 128 + 128].view(16, 8), a @ b))
    check("stmatrix, __match_all_sync, scans and partitions of a warp", right=bool((out[512:] == 1).all()))
    check("a grid that is no multiple of its clusters is not launched", right=module.go(16, x, middle, out, True) == 9)
    check("a cooperative grid that does not fit is not launched", right=module.go(17, x, middle, out, True) == 720)
    dist.destroy_process_group()
    print("done", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PKB_EMULATOR_SEED", "7")
    print("seed", os.environ["PKB_EMULATOR_SEED"], file=sys.stderr)
    main()
