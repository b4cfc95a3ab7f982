"""Tries many kernels in one start of ranks, for tuning: are they correct, and how long do they take beside the reference?

    python benchmarks/kernel_trials.py solutions/*.py [--platform auto] [--ranks 8] [--sizes paper,real] [--out FILE.jsonl]
    python benchmarks/kernel_trials.py solutions/45*.py --sizes real --replace 'PIECE_BYTES = 4096=>PIECE_BYTES = 8192'
    python benchmarks/kernel_trials.py solutions/*_cuda.py --ranks 4 --sizes paper,real --before v1

It is not a judge: kernels run without a sandbox, in the same processes as the reference, on few sets of data, and times are
medians of few calls. In return it takes a second or two per kernel instead of ten. `--replace` tries every file again with
parts of it changed, joined by ` && `. A kernel that hangs or crashes only costs its own row and a new start of the ranks.

`--before COMMIT` shows whether kernels have become slower since: those of that commit, with its kit, alternate with the
present ones in the same ranks, so that the ratio depends on neither machine nor judge. Times of one kernel differ by a tenth
from start to start, and by some percent when they alternate.
"""

import argparse
import faulthandler
import importlib
import importlib.util
import io
import json
import mmap
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from own_processes import Lines, all_ended, start

ROOT = Path(__file__).resolve().parent.parent
CALLS = 10
BEFORE = "before"
"""The variant that is a kernel of an earlier commit."""
ARCHIVED = ("src/pkb/kit", "solutions")
BEFORE_CALLS, BEFORE_REPEATS = 60, 3
"""To tell some percent."""


def earlier(commit: str, files: list[Path], folder: Path) -> dict[str, str]:
    """The texts of these kernels at a commit, or in what `git archive` made of it, for a machine that has no repository. Its
    kit is put into `folder` under another name, which the texts import."""
    archive = ["git", "archive", commit, *ARCHIVED]
    packed = (
        Path(commit).read_bytes()
        if Path(commit).is_file()
        else subprocess.run(archive, cwd=ROOT, capture_output=True, check=True, timeout=60).stdout
    )
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")
    (folder / "src" / "pkb" / "kit").rename(folder / "kit_before")
    for path in (folder / "kit_before").rglob("*.py"):
        path.write_text(renamed(path.read_text()))
    kept = [path for path in files if (folder / "solutions" / path.name).exists()]
    return {path.name: renamed((folder / "solutions" / path.name).read_text()) for path in kept}


def renamed(text: str) -> str:
    return text.replace("from pkb import kit", "import kit_before as kit").replace("pkb.kit", "kit_before")


def cases_of(args: argparse.Namespace, before: dict[str, str]) -> list[dict[str, Any]]:
    """In the order in which they take turns."""
    if before:
        pair = [("", None), (BEFORE, before)]
        return [
            {
                "file": str(path), "size": size, "variant": variant, "calls": BEFORE_CALLS,
                "text": texts[path.name] if texts else path.read_text(),
            }
            for size in args.sizes.split(",") for path in args.files if path.name in before
            for _ in range(BEFORE_REPEATS) for variant, texts in pair
        ]  # fmt: skip
    found = []
    for size in args.sizes.split(","):
        for path in args.files:
            text = path.read_text()
            found.append({"file": str(path), "size": size, "text": text, "variant": ""})
            for change in args.replace:
                pairs = [pair.split("=>") for pair in change.split(" && ")]
                if all(before in text for before, _ in pairs):
                    changed = text
                    for before, after in pairs:
                        changed = changed.replace(before, after)
                    found.append({"file": str(path), "size": size, "text": changed, "variant": change})
    return found


# -- one rank -----------------------------------------------------------------------------------------------------------


def serve(rank: int, world: int, folder: Path, device_index: int, device_kind: str, backend: str) -> None:
    import torch
    import torch.distributed as dist

    from pkb.rank.devices import CpuDevice, CudaDevice, RankBarrier

    faulthandler.register(signal.SIGUSR1)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.allow_tf32 = False
    sharers = world if torch.cuda.device_count() == 1 else 1
    device: Any = CudaDevice(device_index, sharers=sharers) if device_kind == "cuda" else CpuDevice()
    store = dist.FileStore(str(folder / "rendezvous"), world)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    if device_kind == "cuda":
        device.open_barrier()
    with (folder / "barrier").open("r+b") as page:
        barrier = RankBarrier(mmap.mmap(page.fileno(), 4096), rank, world)
    for number, case in enumerate(json.loads((folder / "cases.json").read_text())):
        if rank == 0:
            print(json.dumps({"begin": number}), flush=True)
        try:
            answer = trial(case, number, rank, world, folder, device, barrier)
        except Exception:
            answer = {"error": traceback.format_exc()[-1500:]}
        answers: list[Any] = [None] * world
        dist.all_gather_object(answers, answer, group=gloo())
        if rank == 0:
            print(json.dumps({"case": number} | merged(answers)), flush=True)
        if any("error" in a for a in answers):
            return  # ranks may have parted: start again


@cache
def gloo() -> Any:
    """For what ranks tell each other here, beside the group that is timed."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo")


def merged(answers: list[dict[str, Any]]) -> dict[str, Any]:
    errors = {rank: a["error"] for rank, a in enumerate(answers) if "error" in a}
    if errors:
        return {"errors": errors}
    row: dict[str, Any] = {"ratio": max((a["ratio"] for a in answers), default=None)}
    row["what"] = [f"rank {rank}: {a['what']}" for rank, a in enumerate(answers) if a["what"]]
    for side in ("reference", "candidate"):
        calls = zip(*(a[side] for a in answers), strict=True)
        times = sorted(max(end - begin for begin, end in c) / 1e3 for c in calls)
        row[f"{side}_us"] = round(times[len(times) // 2], 1)
        row[f"{side}_host_us"] = round(max(a[f"{side}_host_us"] for a in answers), 1)
    row["speedup"] = round(row["reference_us"] / row["candidate_us"], 3)
    row["seconds"] = max(a["seconds"] for a in answers)
    return row


def trial(
    case: dict[str, Any], number: int, rank: int, world: int, folder: Path, device: Any, barrier: Any
) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    from pkb.judge.timing.rounds import cover_for
    from pkb.problems import get
    from pkb.problems.base import DTYPES
    from pkb.problems.compare import Context
    from pkb.problems.draw import Draw, GroupRef
    from pkb.rank.comparison.truth import compare_trees, outcome, widen
    from pkb.rank.execute import run_batch
    from pkb.rank.trees import describe
    from pkb.rank.window.seals import Seals
    from pkb.types.protocol.commands import Schedule

    began = time.monotonic()
    problem = get(Path(case["file"]).name.split("_", 1)[0])
    dtype = problem.default_dtype
    path = folder / f"candidate_{number}_{rank}.py"
    path.write_text(case["text"])
    spec = importlib.util.spec_from_file_location(f"candidate_{number}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def arguments(call: int) -> dict[str, Any]:
        draw = Draw(
            secret=b"trial", call=call, rank=rank, world_size=world, size=problem.sizes[case["size"]],
            dtype=DTYPES[dtype], device=device.torch_device, layout=problem.layout,
        )  # fmt: skip
        return {k: dist.group.WORLD if isinstance(v, GroupRef) else v for k, v in problem.inputs(draw).items()}

    ratio, what = 0.0, ""
    large = case["size"] == "real"
    for call in (0,) if large else (0, 1, 2):
        native = outcome(problem.reference, problem, arguments(call))
        dtypes = [t.dtype for t in describe(native)[1]]
        wide = problem.truth == "float64" and not large
        truth = outcome(problem.reference, problem, widen(arguments(call))) if wide else native
        got = outcome(module.solution, problem, arguments(call))
        context = Context(arguments=arguments(call), rank=rank, world_size=world, dtype=DTYPES[dtype])
        device.synchronize()
        dist.barrier(group=gloo())
        result = compare_trees(problem, truth, dtypes, got, context=context, upstream=False, others={})
        if result.difference is not None:
            what = f"call {call}: {result.difference}"[:600]
        ratio = max(ratio, result.ratio if result.ratio is not None else float("inf"))
        del native, truth, got, context
    answer: dict[str, Any] = {"ratio": ratio, "what": what}
    bytes_held = sum(t.numel() * t.element_size() for t in describe(arguments(0))[1])
    sets = 2 if bytes_held > 200e6 else 4
    held = {slot: arguments(10 + slot) for slot in range(sets)}
    calls = 4 if bytes_held > 500e6 else case.get("calls", CALLS)
    slots = [i % sets for i in range(calls)]
    device.synchronize()
    dist.barrier(group=gloo())

    def timed(function: Any, slots: list[int], cover_us: float) -> tuple[list[tuple[int, int]], float]:
        """Start and end of each call on this rank, and how long a call keeps the host of the slowest."""
        batch = run_batch(
            function, held, Schedule(tuple(slots), aligned=True, cover_us=cover_us), device=device, barrier=barrier,
            seals=Seals(device.window, rank),
            mutates=tuple(problem.mutates), returns_input=problem.returns_input, on_step=lambda text, *, waiting=False: None,
        )  # fmt: skip
        hosts = [0.0] * world
        dist.all_gather_object(hosts, statistics.median(r.host_us for r in batch.records), group=gloo())
        return [(r.start_ns, r.end_ns) for r in batch.records], max(hosts)

    for side, function in (("reference", problem.reference), ("candidate", module.solution)):
        _, host_us = timed(function, slots[:3], 0.0)
        answer[side], answer[f"{side}_host_us"] = timed(function, slots, cover_for(host_us))
    dist.barrier(group=gloo())  # nobody reads a peer's buffers any more
    if device.torch_device.type == "cuda":
        kit = "kit_before" if case["variant"] == BEFORE else "pkb.kit"
        for place, kept in (("pipeline", "_PIPELINES"), ("exchange", "_EXCHANGES"), ("staging", "_STAGES")):
            getattr(importlib.import_module(f"{kit}.{place}"), kept, {}).clear()
        del held, module
        torch.cuda.empty_cache()
    answer["seconds"] = round(time.monotonic() - began, 2)
    return answer


# -- the parent ---------------------------------------------------------------------------------------------------------


def run_world(
    cases: list[dict[str, Any]], ranks: int, platform: Any, deadline: float, limit_s: float, kit_before: str,
    keep: Callable[[dict[str, Any]], None],
) -> int:  # fmt: skip
    """How many cases were dealt with; a row of each is kept as soon as it is there."""
    begun, kept = -1, 0
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="pkb-trials-") as name, all_ended(processes):
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps(cases))
        (folder / "barrier").write_bytes(b"\0" * 4096)
        places = [kit_before, os.environ.get("PYTHONPATH", "")]
        environment = os.environ | platform.environment(ranks) | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
        for rank, index in zip(range(ranks), platform.device_indices(ranks) or [0] * ranks, strict=True):
            rest = map(str, (rank, ranks, name, index, platform.device, platform.backend))
            out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            with (folder / f"errors_{rank}").open("w") as errors:
                command = [sys.executable, __file__, "--serve", *rest]
                processes.append(start(command, environment, stdout=out, stderr=errors))
        pipe = processes[0].stdout
        assert pipe is not None
        lines = Lines(pipe.fileno())
        ended = "ended"
        while True:
            left = deadline - time.monotonic()
            line = lines.next(timeout_s=max(0.0, min(limit_s, left)))
            if line is None:
                ended = f"nothing for {limit_s:.0f} s" if left > limit_s else "out of time"
                break
            if not line:
                break
            if not line.startswith(b"{"):
                continue
            message = json.loads(line)
            if "begin" in message:
                begun = message["begin"]
                continue
            keep(label(cases[message["case"]], ranks) | message)
            kept += 1
        if ended != "ended":  # where does everybody stand?
            for process in processes:
                process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
        if ended == "out of time":
            return len(cases)
        if kept <= begun:  # the case that was begun gave no row
            tails = {r: (folder / f"errors_{r}").read_text()[-1500:] for r in range(ranks)}
            keep(label(cases[begun], ranks) | {"errors": {"all": ended}, "tails": tails})
            print(*(f"rank {r}: {tail}" for r, tail in tails.items()), sep="\n", flush=True)
        if begun < 0:
            print("the ranks do not start:", (folder / "errors_0").read_text()[-2000:], flush=True)
            return len(cases)
    return begun + 1


def label(case: dict[str, Any], ranks: int) -> dict[str, Any]:
    return {"file": Path(case["file"]).stem, "size": case["size"], "ranks": ranks, "variant": case["variant"]}


def words(row: dict[str, Any]) -> str:
    head = f"{row['file'][:34]:34s} {row['size']:5s} {row['ranks']} {row['variant']:30s}"
    if "errors" in row:
        return f"{head} FAILED on {sorted(row['errors'])}: {next(iter(row['errors'].values()))}"
    wrong = "" if row["ratio"] <= 1 else f" WRONG {row['what'][:2]}"
    times = f"{row['reference_us']:9.1f} us, ours {row['candidate_us']:9.1f} us, {row['speedup']:6.2f}x"
    host = f"host {row['candidate_host_us']:.0f} us"
    return f"{head} {times}, {host}, error {row['ratio']:.2f}, {row['seconds']} s{wrong}"


def compared(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each case that ran both ways."""
    times: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for row in rows:
        if "errors" not in row:
            sides = times.setdefault((row["file"], row["size"], row["ranks"]), {})
            sides.setdefault(row["variant"], []).append(row["candidate_us"])
    lines = []
    for (file, size, ranks), sides in times.items():
        if set(sides) == {"", BEFORE}:
            now, then = (statistics.median(sides[side]) for side in ("", BEFORE))
            lines.append(
                f"{file[:34]:34s} {size:5s} {ranks} {then:9.1f} us before, {now:9.1f} us now, {now / then:.3f}"
            )
    return lines


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        rank, world, folder, index, kind, backend = sys.argv[2:]
        serve(int(rank), int(world), Path(folder), int(index), kind, backend)
        return 0
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="+", type=Path)
    options.add_argument("--platform", default="auto")
    options.add_argument("--ranks", default="8")
    options.add_argument("--sizes", default="paper")
    options.add_argument("--replace", action="append", default=[], metavar="OLD=>NEW")
    options.add_argument("--before", metavar="COMMIT", help="in turns with those of a commit, or of its archive")
    options.add_argument("--limit", type=float, default=3600.0, help="seconds for everything")
    options.add_argument("--case-limit", type=float, default=60.0, help="seconds for one kernel at one size")
    options.add_argument("--out", type=Path, help="add rows to this file, each as soon as it is there")
    args = options.parse_args()
    from kernel_records import add_row  # not in ranks, which need to start soon

    from pkb.judge.oracle_only.world import running
    from pkb.kit.fingerprint import fingerprint
    from pkb.platforms.registry import resolve

    deadline = time.monotonic() + args.limit
    rows: list[dict[str, Any]] = []
    versions = {"kit": fingerprint()} | ({"before": Path(args.before).stem} if args.before else {})

    def keep(row: dict[str, Any]) -> None:
        rows.append(row | versions)
        print(words(row), flush=True)
        if args.out:
            add_row(args.out, rows[-1])

    with tempfile.TemporaryDirectory(prefix="pkb-before-") as folder:
        before = earlier(args.before, args.files, Path(folder)) if args.before else {}
        for ranks in map(int, args.ranks.split(",")):
            cases = cases_of(args, before)
            while cases and time.monotonic() < deadline:
                with running(resolve(args.platform), ranks) as platform:
                    cases = cases[run_world(cases, ranks, platform, deadline, args.case_limit, folder, keep) :]
    wrong = [row for row in rows if "errors" in row or row["ratio"] > 1]
    print(*compared(rows), sep="\n")
    print(f"{len(rows)} trials, {len(wrong)} wrong or failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
