"""Kernels in CUDA graphs on the race detector: two calls, one that is captured, and replays on changing data. Prints lines
of JSON.

    python tests/races/replays.py "01 two-shot" "the epoch on the host"

A rank comes late to each replay. `wrong` says which replays gave other numbers than the problem's reference.
"""

import json
import sys
import time
import types
from dataclasses import dataclass
from typing import Any

import mutants
import torch
import torch.distributed as dist
from kernels import BY_NAME, KERNELS
from race_world import run

import pkb.kit
from pkb.problems import get
from pkb.problems.base import DTYPES
from pkb.problems.compare import Context
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.comparison.truth import compare_trees, outcome, widen
from pkb.rank.trees import describe

WORLD, REPLAYS = 3, 4
LATE_S = 0.005
FACTORS = (1.0, -1.0, 0.5, -0.5)
NOT_CAPTURED = {
    "13 pushed": "its product is torch's", "13 pulled": "as above", "16 pushed": "as above", "54 large": "as above",
    "21": "it changes its arguments, and looks at a number", "82 many": "its last step is torch's copy_",
}  # fmt: skip
HOST = "the epoch on the host"
HOST_EPOCH = '''
import torch
import torch.distributed as dist
import pkb.kit as kit
import torch.distributed._symmetric_memory as symm_mem

MODULE = kit.compile(r"""
#include "pkb.cuh"
using namespace pkb;
__device__ void meet(u32* const* flags, int rank, int world, u32 epoch) {
  __syncthreads();
  if (threadIdx.x < world) {
    st_release_sys(flags[threadIdx.x] + rank, epoch);
    while ((int)(ld_acquire_sys(flags[rank] + threadIdx.x) - epoch) < 0) {}
  }
  __syncthreads();
}
extern "C" __global__ void all_reduce(float* const* parts, u32* const* flags, const float* in, float* out, int n, int rank,
                                      int world, u32 epoch) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) parts[rank][i] = in[i];
  meet(flags, rank, world, epoch);
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float sum = 0;
    for (int peer = 0; peer < world; ++peer) sum += parts[peer][i];
    out[i] = sum;
  }
  meet(flags, rank, world, epoch + 1);
}
""", name="host_epoch")
STATE = []


def solution(tensor):
    if not STATE:
        buffer = symm_mem.empty(tensor.numel(), dtype=torch.float32, device=tensor.device)
        flags = symm_mem.empty(64, dtype=torch.int32, device=tensor.device).zero_()
        handles = [symm_mem.rendezvous(tensor, dist.group.WORLD) for tensor in (buffer, flags)]
        STATE.extend((buffer, *handles, [0], flags))
        dist.barrier()
    _, handle, flags, epoch, _ = STATE
    out = torch.empty_like(tensor)
    sizes = (kit.i32(tensor.numel()), kit.i32(handle.rank), kit.i32(handle.world_size), kit.u32(epoch[0] + 1))
    epoch[0] += 2
    MODULE.kernel("all_reduce")[1, 64](handle.buffer_ptrs_dev, flags.buffer_ptrs_dev, tensor, out, *sizes)
    return out
'''


@dataclass(frozen=True)
class Case:
    name: str
    problem: int
    size: Any
    dtype: str
    text: str
    built: mutants.Built | None = None
    nvls: bool = False


def case_of(name: str) -> Case:
    if name == HOST:
        return Case(name, 1, {"m": 4, "n": 32}, "fp32", HOST_EPOCH)
    kernel = BY_NAME[name]
    return Case(name, kernel.problem, kernel.size, kernel.dtype, kernel.text(), mutants.build(kernel), kernel.nvls)


def replayed(case: Case, rank: int, *, graph: bool) -> list[str]:
    """What is wrong with each replay, or with each plain call."""
    from pkb.rank.emulate.cuda.kernels import EmulatedModule
    from pkb.rank.emulate.races.recording import recorded_calls

    problem, dtype = get(case.problem), DTYPES[case.dtype]
    size = problem.sizes[case.size] if isinstance(case.size, str) else case.size
    if case.built:
        module = EmulatedModule(case.built.artifact.path.stem, case.built.artifact)
        pkb.kit.compile = lambda *arguments, **options: module  # type: ignore[assignment, misc]
    candidate = types.ModuleType("candidate")
    exec(compile(case.text, "candidate.py", "exec"), candidate.__dict__)

    def drawn(factor: float) -> dict[str, Any]:
        draw = Draw(b"0" * 16, 0, rank, WORLD, size, dtype, torch.device("cpu"), problem.layout)
        inputs = problem.inputs(draw).items()
        values: dict[str, Any] = {n: dist.group.WORLD if isinstance(v, GroupRef) else v for n, v in inputs}
        return {n: v * factor if _is_real(v) else v for n, v in values.items()}

    truths = []
    for factor in FACTORS:
        native = outcome(problem.reference, problem, drawn(factor))
        wide = outcome(problem.reference, problem, widen(drawn(factor))) if problem.truth == "float64" else native
        truths.append((wide, [tensor.dtype for tensor in describe(native)[1]]))
    given = drawn(1.0)
    for _ in range(2):
        recorded_calls(candidate.solution)(*given.values())
    made = torch.cuda.CUDAGraph()
    if graph:
        with torch.cuda.graph(made):
            out = candidate.solution(*given.values())
    wrong = []
    for number in range(REPLAYS):
        factor = FACTORS[number % len(FACTORS)]
        fresh = drawn(factor)
        for name, value in given.items():
            if _is_real(value):
                value.copy_(fresh[name])
        if rank == number % WORLD:
            time.sleep(LATE_S)
        if graph:
            recorded_calls(lambda *_: made.replay())(*given.values())
        else:
            out = recorded_calls(candidate.solution)(*given.values())
        torch.cuda.synchronize()
        wide, dtypes = truths[number % len(FACTORS)]
        context = Context(fresh, rank, WORLD, dtype)
        got = {"returned": out, "mutated": {}}
        verdict = compare_trees(problem, wide, dtypes, got, context=context, upstream=False, others={})
        wrong.append("" if verdict.ok else f"replay {number}: {str(verdict)[:200]}")
    return wrong


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def main() -> None:
    names = sys.argv[1:] or [HOST, *(kernel.name for kernel in KERNELS if kernel.name not in NOT_CAPTURED)]
    for name in names:
        case = case_of(name)
        for graph in (True, False) if name == HOST else (True,):

            def program(rank: int, case: Case = case, graph: bool = graph) -> bytes:
                return json.dumps(replayed(case, rank, graph=graph)).encode()

            ran = run(program, world=WORLD, cuda="__global__", nvls=case.nvls)
            wrong = [what for said in ran.said for what in json.loads(said or b'["no answer"]') if what]
            found = {
                "name": name,
                "graph": graph,
                "wrong": wrong,
                "kinds": sorted(ran.kinds),
                "trouble": ran.trouble[-800:],
            }
            report = ran.report
            found |= {
                "events": report["events"],
                "cut": report["broken"] or report["truncated"],
                "first": report["findings"][:1],
            }
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
