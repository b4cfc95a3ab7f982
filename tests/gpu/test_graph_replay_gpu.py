"""Our kernels in a CUDA graph: captured once, replayed 100 times on changing data with a rank that comes late each time.

One start of four ranks serves all of them. A kernel that keeps a count or an epoch on the host is wrong here: its waits
pass at once in a replay, and it reads what the replay before has left.
"""

import importlib.util
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
SOLUTIONS = Path(__file__).parents[2] / "solutions"
RANKS, REPLAYS, SETS = 4, 100, 4
LIMIT_S = 240
IN_PLACE = {21}  # what is captured would scale its gradients again in every replay
BY_LIBRARY = [(13, ("FUSED_FLOPS = 2**29", "FUSED_FLOPS = 0")), (16, ("FUSED_FLOPS = 2**31", "FUSED_FLOPS = 0"))]
BY_LIBRARY += [(54, ("SMALL_WORK = 2**27", "SMALL_WORK = 0"))]


def cases() -> list[dict[str, Any]]:
    files = {int(path.name.split("_")[0]): path for path in sorted(SOLUTIONS.glob("*_cuda.py"))}
    found: list[tuple[int, str, tuple[str, ...]]] = [(number, "tiny", ()) for number in files if number not in IN_PLACE]
    found += [(number, "paper", ()) for number in range(1, 9)]  # two-shot sums, and many turns
    found += [(number, "tiny", edit) for number, edit in BY_LIBRARY]
    return [
        {
            "file": str(files[number]),
            "size": size,
            "edit": edit,
            "name": f"{number:02d}-{size}{'-library' * bool(edit)}",
        }
        for number, size, edit in found
    ]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was wrong with each case on any rank, by its name."""
    from pkb.judge.oracle_only.world import running
    from pkb.platforms.registry import resolve

    folder = tmp_path_factory.mktemp("replay")
    (folder / "cases.json").write_text(json.dumps(cases()))
    with running(resolve("virtual"), RANKS) as platform:
        environment = os.environ | platform.environment(RANKS) | {"PKB_BUILD_DIR": str(folder / "build")}
        processes = []
        for rank, index in zip(range(RANKS), platform.device_indices(RANKS) or [0] * RANKS, strict=True):
            command = [sys.executable, __file__, *map(str, (rank, folder, index, platform.backend))]
            with (folder / f"said{rank}").open("w") as said:
                processes.append(subprocess.Popen(command, stdout=said, stderr=said, env=environment))
        try:
            for process in processes:
                process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            pass  # what is missing below says where
        finally:
            for process in processes:
                process.kill()
                process.wait(timeout=20)
    found: dict[str, str] = {}
    for rank in range(RANKS):
        done = folder / f"answers{rank}"
        rows = dict(json.loads(line) for line in done.read_text().splitlines()) if done.exists() else {}
        last = (folder / f"said{rank}").read_text()[-600:]
        for case in cases():
            what = rows.get(case["name"], f"no answer: {last}")
            found[case["name"]] = found.get(case["name"], "") + (f"rank {rank}: {what}\n" if what else "")
    return found


@pytest.mark.parametrize("name", [case["name"] for case in cases()])
def test_every_replay_is_right(name: str, answers: dict[str, str]) -> None:
    assert answers[name] == ""


# -- a rank ---------------------------------------------------------------------------------------------------------------


def serve(rank: int, folder: Path, index: int, backend: str) -> None:
    import torch
    import torch.distributed as dist

    from pkb.rank.devices import CudaDevice

    device = CudaDevice(index, sharers=RANKS)
    store = dist.FileStore(str(folder / "rendezvous"), RANKS)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=RANKS)
    words = dist.new_group(backend="gloo")
    torch.set_grad_enabled(False)
    for number, case in enumerate(json.loads((folder / "cases.json").read_text())):
        try:
            what = replay(case, number, rank, folder, device.torch_device, words)
        except Exception:
            what = traceback.format_exc()[-1500:]
        with (folder / f"answers{rank}").open("a") as file:
            file.write(json.dumps([case["name"], what]) + "\n")
        others: list[Any] = [None] * RANKS
        dist.all_gather_object(others, what, group=words)
        if any("Error" in (other or "") for other in others):
            return  # ranks may have parted


def replay(case: dict[str, Any], number: int, rank: int, folder: Path, device: Any, words: Any) -> str:
    import torch
    import torch.distributed as dist

    from pkb.problems import get
    from pkb.problems.base import DTYPES
    from pkb.problems.compare import Context
    from pkb.problems.draw import Draw, GroupRef
    from pkb.rank.comparison.truth import compare_trees, outcome, widen
    from pkb.rank.trees import describe

    problem = get(Path(case["file"]).name.split("_", 1)[0])
    text = Path(case["file"]).read_text()
    if case["edit"]:
        assert text.count(case["edit"][0]) == 1, case["edit"]
        text = text.replace(*case["edit"])
    path = folder / f"candidate_{number}_{rank}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"candidate_{number}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dtype = DTYPES[problem.default_dtype]

    def drawn(variant: int) -> dict[str, Any]:
        """Other numbers for each variant, in the same shapes and with the same scalars: a graph has those inside."""
        draw = Draw(
            secret=b"replay", call=0, rank=rank, world_size=RANKS, size=problem.sizes[case["size"]], dtype=dtype,
            device=device, layout=problem.layout,
        )  # fmt: skip
        arguments: dict[str, Any] = {
            k: dist.group.WORLD if isinstance(v, GroupRef) else v for k, v in problem.inputs(draw).items()
        }
        factor = (1.0, -1.0, 0.5, -0.5)[variant]
        return {k: v * factor if _is_real(v) else v for k, v in arguments.items()}

    truths = []
    for variant in range(SETS):
        native = outcome(problem.reference, problem, drawn(variant))
        wide = outcome(problem.reference, problem, widen(drawn(variant))) if problem.truth == "float64" else native
        truths.append((wide, [tensor.dtype for tensor in describe(native)[1]]))
    given = drawn(0)
    for _ in range(2):
        module.solution(*given.values())  # makes what is made once
    torch.cuda.synchronize()
    dist.barrier(group=words)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module.solution(*given.values())
    fresh = [drawn(variant) for variant in range(SETS)]
    results = []
    torch.cuda.synchronize()
    for number_of_replay in range(REPLAYS):
        for name, value in given.items():
            if _is_real(value):
                value.copy_(fresh[number_of_replay % SETS][name])
        if rank == number_of_replay % RANKS:
            torch.cuda._sleep(1_000_000)  # half a millisecond late
        graph.replay()
        results.append([tensor.clone() for tensor in describe(out)[1]])
    torch.cuda.synchronize()
    dist.barrier(group=words)
    wrong = ""
    for number_of_replay, tensors in enumerate(results):
        variant = number_of_replay % SETS
        for tensor, place in zip(tensors, describe(out)[1], strict=True):
            place.copy_(tensor)
        wide, dtypes = truths[variant]
        context = Context(fresh[variant], rank, RANKS, dtype)
        got = {"returned": out, "mutated": {}}
        verdict = compare_trees(problem, wide, dtypes, got, context=context, upstream=False, others={})
        if not verdict.ok:
            wrong = wrong or f"replay {number_of_replay}: {str(verdict)[:300]}"
    dist.barrier(group=words)  # nobody reads a peer's buffers any more
    for name in ("pipeline", "exchange", "staging"):
        for kept in ("_PIPELINES", "_EXCHANGES", "_STAGES"):
            vars(sys.modules[f"pkb.kit.{name}"]).get(kept, {}).clear()
    return wrong


def _is_real(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
