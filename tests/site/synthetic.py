"""Made-up runs, written to a real store through its API: no model and no GPU is asked. Numbers mean nothing.

`python tests/site/synthetic.py ROOT [COUNT]` writes one by hand: without COUNT a small one that has everything a page can
show, with COUNT so many verdicts.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pkb.problems.registry import default_registry
from pkb.store import CandidateFile, Store, TaskSpec
from pkb.types.case import Case
from pkb.types.difference import Pattern
from pkb.types.document import VerdictDocument
from pkb.types.profile import KernelUse, ObservedPath, Profile, RankProfile, Role, SideProfile
from pkb.types.race import Access, MissingOrder, Moment, RaceFinding, RaceProof, Site
from pkb.types.verdict import (
    CandidateRef,
    Communication,
    Decision,
    Evaluation,
    Failure,
    FailureKind,
    Mismatch,
    ProblemRef,
    RaceKind,
    RankState,
    Roofline,
    Stage,
    Standing,
    Timing,
    Verdict,
)

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>bold</b>{{7*7}} ' \" & \u202e\u2028 =1+1"
TRANSCRIPT = {
    "messages": [{"role": "user", "content": f"write a kernel {HOSTILE}"}],
    "output": {"choices": [{"message": {"role": "assistant", "content": f"here it is {HOSTILE}"}}]},
}
SOURCE = '''"""Sums by reading every peer's buffer."""
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {{}}  # variant {variant}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(*tensor.shape, dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor)
    handle.barrier(channel=0)
    total = torch.zeros_like(tensor)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, buffer.shape, tensor.dtype)
    handle.barrier(channel=1)
    return total
'''
FAILURES: tuple[tuple[Verdict, float], ...] = (
    (Verdict.CORRECT, 8), (Verdict.WRONG, 5), (Verdict.COMPILE_ERROR, 4), (Verdict.RUNTIME_ERROR, 2), (Verdict.DEADLOCK, 2),
    (Verdict.RACE, 1.5), (Verdict.LOAD_ERROR, 1), (Verdict.CRASH, 0.7), (Verdict.REJECTED, 0.7), (Verdict.UNSUPPORTED, 0.3),
    (Verdict.HARNESS_ERROR, 0.1),
)  # fmt: skip


def evaluation(
    dice: random.Random, task: TaskSpec, *, verdict: Verdict | None = None, skill: float = 1.0
) -> Evaluation:
    """A verdict with the evidence that it must have. `skill` raises the chance to be right, and the speed."""
    if verdict is None:
        weights = [weight * (skill if found is Verdict.CORRECT else 1.0) for found, weight in FAILURES]
        verdict = dice.choices([found for found, _ in FAILURES], weights)[0]
    platform = "node" if task.case.platform == "auto" else task.case.platform
    fields: dict[str, Any] = {
        "verdict": verdict,
        "stage": Stage.CORRECTNESS,
        "detail": f"{verdict.value} in a made-up evaluation",
        "problem": ProblemRef(task.problem_id, task.case.problem.partition("_")[2]),
        "candidate": CandidateRef(f"{task.case.problem}_{task.backend}.py", "", task.backend),
        "platform": platform,
        "hardware": {"cpu": "8 cores", "virtual": "1x NVIDIA H200"}.get(platform, "8x NVIDIA H100 80GB HBM3"),
        "ranks": task.case.ranks,
        "size": "paper" if task.case.size == "auto" else task.case.size,
        "dtype": "bf16" if task.case.dtype == "auto" else task.case.dtype,
        "plan": task.case.plan,
        "checks": ("5 trials at the asked size",),
        "stage_seconds": {"inspect": 0.1, "build": 2.5},
        "isolation": {"network": "on", "landlock": "on"},
        "environment": {"torch": "2.13.0"},
        "started_at": "2026-11-15T12:00:00Z",
    }
    library = dice.random() < 0.2
    if verdict in (Verdict.CORRECT, Verdict.WRONG, Verdict.RACE, Verdict.DEADLOCK):
        fields["communication"] = Communication.LIBRARY if library else Communication.CUSTOM
        fields["paths"] = (
            ("library",) if library else ("sm_load_store", *(("copy_engine",) if dice.random() < 0.3 else ()))
        )
    return Evaluation(**(fields | _evidence(dice, task, verdict, skill, timed=task.case.plan != "quick")))


def race_proof() -> RaceProof:
    """A relaxed flag between two ranks, in a kernel with an odd name."""
    write = Access(0, HOSTILE, 3, 17, 1, True, "plain store", "kernel.cu", 6, "buffers[rank][i] = in[i];", 31)
    read = replace(
        write, rank=1, write=False, what="plain load", line=12, text="sum += buffers[peer][i];", candidate_line=37
    )
    flags = [Site("kernel.cu", line, what) for line, what in ((8, "st.relaxed.sys"), (9, "ld.relaxed.sys"))]
    finding = RaceFinding(
        RaceKind.RELAXED, 512, "symmetric allocation 0 of rank 0", 1024, 2, write, read, MissingOrder(HOSTILE, *flags)
    )
    seen = ((0, 40, "write", 6), (0, 41, "st.relaxed.sys", 8), (1, 57, "ld.relaxed.sys", 9), (1, 58, "read", 12))
    timeline = tuple(Moment(rank, order, what, "kernel.cu", line, HOSTILE) for rank, order, what, line in seen)
    return RaceProof(1, 3, 2, "tiny", (7, 8, 9), "both", 9000, (finding, finding), timeline)


def _evidence(dice: random.Random, task: TaskSpec, verdict: Verdict, skill: float, *, timed: bool) -> dict[str, Any]:
    ranks = range(task.case.ranks)
    failing = tuple(sorted(dice.sample(ranks, dice.randint(1, task.case.ranks))))
    mismatch = Mismatch(
        case=f"size tiny, {task.case.ranks} ranks, trial 2", ranks=failing, rank=failing[0], output="the result",
        what="values differ", patterns=(Pattern.STALE, Pattern.SOME_ROWS), amount=3, error_ratio=41.7, first_index=(16, 5),
        first_got=0.25, first_expected=-1.5, differing_fraction=0.25,
        regions=tuple((f"rows {16 * n}-{16 * n + 15}", round(dice.random() * (n % 3 > 0), 2)) for n in range(8)),
    )  # fmt: skip
    match verdict:
        case Verdict.CORRECT:
            found: dict[str, Any] = {"stage": Stage.DONE, "detail": "all ranks right in 9 calls"}
            if timed:
                found["timing"] = timing(dice, skill)
            return found
        case Verdict.WRONG:
            return {"mismatch": mismatch, "failing_ranks": failing, "detail": f"the result differs on ranks {failing}"}
        case Verdict.REUSED_OUTPUT:
            return {"stage": Stage.RACES, "mismatch": mismatch, "failing_ranks": failing}
        case Verdict.RACE:
            return {
                "stage": Stage.RACES,
                "mismatch": mismatch,
                "race_kind": RaceKind.STALE_READ,
                "race_proof": race_proof(),
                "failing_ranks": failing,
            }
        case Verdict.DEADLOCK:
            states = tuple(
                RankState(rank, Standing.WAITING, "symmetric-memory wait_signal", ("candidate.py:41 in solution: wait(0)",))
                if rank in failing else RankState(rank, Standing.FINISHED) for rank in ranks
            )  # fmt: skip
            return {"rank_states": states, "failing_ranks": failing, "detail": "no answer after 60 s"}
        case Verdict.COMPILE_ERROR:
            return {
                "stage": Stage.BUILD,
                "failure": Failure(FailureKind.COMPILER, 'x.cu(12): error: identifier "blockIdy" is undefined'),
            }
        case Verdict.LOAD_ERROR:
            return {
                "stage": Stage.START,
                "failure": Failure(FailureKind.EXCEPTION, "No module named 'cupy'", 0, name="ImportError"),
            }
        case Verdict.RUNTIME_ERROR:
            message = dice.choice(
                ["The size of tensor a (3) must match the size of tensor b (4)", "name 'tl' is not defined"]
            )
            kind = "NameError" if "name" in message else "RuntimeError"
            return {
                "failure": Failure(FailureKind.EXCEPTION, message, 1, "Traceback\n  candidate.py:12", kind),
                "failing_ranks": (1,),
            }
        case Verdict.CRASH:
            return {
                "failure": Failure(FailureKind.PROCESS_ENDED, "rank 0 was ended by SIGSEGV", 0),
                "output_tail": "last words\n",
            }
        case Verdict.REJECTED:
            found = {"stage": Stage.TIMING, "failure": Failure(FailureKind.CLOCK, "the host wall clock saw 900 us")}
            return found | ({"timing": timing(dice, 50.0)} if timed else {})
    return {"stage": Stage.START}


def timing(dice: random.Random, skill: float, *, calls: int = 25, rounds: int = 4) -> Timing:
    reference = dice.uniform(40, 900)
    speedup = dice.lognormvariate(0.1 * skill, 0.5)
    width = dice.uniform(0.01, 0.1)
    median = reference / speedup
    low, high = speedup * (1 - width), speedup * (1 + width)

    def samples(middle: float) -> tuple[tuple[float, ...], ...]:
        return tuple(
            tuple(round(middle * dice.lognormvariate(0, 0.05), 2) for _ in range(calls)) for _ in range(rounds)
        )

    return Timing(
        reference_us=reference, candidate_us=median, speedup=speedup, speedup_low=low, speedup_high=high,
        decision=Decision.FASTER if low > 1 else Decision.SLOWER if high < 1 else Decision.SAME,
        calls=calls * rounds, rounds=rounds,
        reference_p10_us=reference * 0.95, reference_p90_us=reference * 1.1, candidate_p10_us=median * 0.95,
        candidate_p90_us=median * 1.1, floor_us=median / 8, reference_wall_us=reference, candidate_wall_us=median,
        clock_agreement="the host wall clock saw 1.02 times the reported time", first_call_us=9000.0,
        reference_samples_us=samples(reference), candidate_samples_us=samples(median),
        roofline=Roofline("h100x8", "datasheet", "link", median * 0.4, median * 0.5, median * 0.7, 2.3,
                          0.4 / speedup, 0.4),
        window_speedup=1.25, window_speedup_low=1.1, window_speedup_high=1.5, empty_walls_us=(60.0, 61.0, 90.0),
        reference_alg_gbps=4e4 / reference, candidate_alg_gbps=4e4 / median, reference_bus_gbps=7e4 / reference,
        candidate_bus_gbps=7e4 / median,
    )  # fmt: skip


def profile(ranks: int) -> Profile:
    def side(step: float) -> SideProfile:
        timeline = tuple(
            (
                start * step,
                step * 0.8,
                "sum_tiles<bf16>" if start % 3 else "copy",
                "compute" if start % 3 else "communication",
            )
            for start in range(9)
        )
        each = tuple(RankProfile(rank, 3, 2, 0, 90, 41, 60, 0, 20, timeline, 3.5 * rank) for rank in range(ranks))
        use = KernelUse("sum_tiles<bf16>", "kernel", Role.COMPUTE, 1.0, 41.0)
        seen = (ObservedPath("sm_load_store", "sum_tiles, 1 a call"),)
        return SideProfile(3, 3, 2, 0, 4096, 120, 41, 105, 0, 0.63, "", (), (use,), seen, each)

    return Profile(side(10), side(16), "3 calls of each side")


def candidate(task: TaskSpec, variant: int, *, more: str = "") -> CandidateFile:
    source = SOURCE.format(variant=variant) + more
    return CandidateFile(source=source.encode(), filename=f"{task.case.problem}_{task.backend}.py", origin="made up")


def stems(count: int) -> list[str]:
    registry = default_registry()
    return [registry.get(number).stem for number in registry.ids()[:count]]


def write_rich(root: Path) -> list[str]:
    """Every kind of page: two models with two samples each, an agent, files, all verdicts, hostile text. Run ids."""
    dice = random.Random(7)
    problems = stems(12)
    with Store(root) as store:
        models = [
            TaskSpec(collection=model, case=Case(stem, "node", 4, "paper", "bf16"), backend="cuda", sample=sample)
            for model in ("maker/alpha-1", "maker/beta-2") for stem in problems for sample in range(2)
        ]  # fmt: skip
        shots = store.create_run("generate", name="shots", tasks=models)
        for number, task in enumerate(models):
            skill = 3.0 if "alpha" in task.collection else 1.0
            answers = number % 17 != 3
            store.record_step(
                shots.id, task.key, step=0, transcript=TRANSCRIPT, tokens_in=3000, tokens_out=900, cost_usd=0.031,
                seconds=14.2, candidate=candidate(task, number % 40) if answers else None,
            )  # fmt: skip
            if answers:
                store.record_evaluation(shots.id, task.key, evaluation(dice, task, skill=skill))
            else:
                _finish(store, shots.id, task)
        store.set_run_state(shots.id, "complete")

        loops = [
            TaskSpec(collection="maker/alpha-1", case=Case(stem, platform="node", size="paper"), backend="cuda")
            for stem in problems[:6]
        ]
        agent = store.create_run("agent", name="loop", tasks=loops)
        for number, task in enumerate(loops):
            length = 3 + number
            for step in range(length):
                store.record_step(
                    agent.id, task.key, step=step, transcript=TRANSCRIPT, tokens_in=5000, tokens_out=700, cost_usd=0.05,
                    seconds=9.0, candidate=candidate(task, number, more=f"\n# step {step}\n"),
                )  # fmt: skip
                last = step == length - 1
                verdict = (
                    Verdict.CORRECT if last and number % 4 else Verdict.COMPILE_ERROR if step == 0 else Verdict.WRONG
                )
                made = evaluation(dice, task, verdict=verdict, skill=3)
                store.record_evaluation(agent.id, task.key, made, step=step, done=last)
        store.set_run_state(agent.id, "complete")

        every = [
            TaskSpec(collection="mine", case=Case(problems[number], platform="virtual", ranks=4, size=size), backend="triton")
            for number, _ in enumerate(Verdict) for size in ("paper", "real")
        ]  # fmt: skip
        files = store.create_run("sweep", name="mine", tasks=every)
        for task, verdict in zip(every, [verdict for verdict in Verdict for _ in range(2)], strict=True):
            made = evaluation(dice, task, verdict=verdict)
            document = made.to_dict()
            if verdict is Verdict.CORRECT:
                document["profile"] = _plain(profile(4))
                document["timing"] |= {"against": "baseline", "other": {
                    "against": "reference", "us": 777.0, "speedup": 2.5, "speedup_low": 2.4, "speedup_high": 2.6,
                }}  # fmt: skip
            store.record_evaluation(files.id, task.key, VerdictDocument(document), candidate=candidate(task, 1))
        store.set_run_state(files.id, "complete")

        nasty = TaskSpec(collection=HOSTILE, case=Case(problems[0], platform="virtual", ranks=2), backend="cuda")
        hostile = store.create_run("sweep", name=HOSTILE, note=HOSTILE, tasks=[nasty])
        told = evaluation(dice, nasty, verdict=Verdict.RUNTIME_ERROR).to_dict()
        told |= {"detail": HOSTILE, "output_tail": HOSTILE, "hints": [HOSTILE], "hardware": HOSTILE, "paths": [HOSTILE]}
        told["candidate"] = {"file": HOSTILE}
        told["failure"] = {"kind": HOSTILE, "message": HOSTILE, "rank": 0, "trace": HOSTILE}
        file = CandidateFile(
            source=f"x = 1\n# {HOSTILE}\ns = '''{HOSTILE}'''\n".encode(), filename=HOSTILE, origin=HOSTILE
        )
        store.record_evaluation(hostile.id, nasty.key, VerdictDocument(told), candidate=file)
        store.set_run_state(hostile.id, "complete")
        return [shots.id, agent.id, files.id, hostile.id]


def write_many(root: Path, count: int, *, collections: int = 8) -> str:
    """So many verdicts of one run: every problem, several collections, as many samples as it takes."""
    dice = random.Random(1)
    registry = default_registry()
    problems = [registry.get(number).stem for number in registry.ids()]
    tasks: list[TaskSpec] = []
    while len(tasks) < count:
        sample = len(tasks) // (len(problems) * collections)
        tasks += [
            TaskSpec(collection=f"model-{number}", case=Case(stem, "node", size="paper"), backend="cuda", sample=sample)
            for number in range(collections) for stem in problems
        ]  # fmt: skip
    tasks = tasks[:count]
    made: dict[
        tuple[str, str, int], Evaluation
    ] = {}  # a few for each problem and collection: what is stored already is cheap
    with Store(root) as store:
        run = store.create_run("generate", name="many", tasks=tasks)
        for number, task in enumerate(tasks):
            kind = (task.collection, task.problem, dice.randrange(4))
            if kind not in made:
                made[kind] = evaluation(dice, task, skill=1 + int(task.collection.rpartition("-")[2]) / 2)
            store.record_evaluation(run.id, task.key, made[kind], candidate=candidate(task, number % 40))
        store.set_run_state(run.id, "complete")
    return run.id


def _finish(store: Store, run_id: str, task: TaskSpec) -> None:
    """The model's answer held no candidate: done, without a verdict."""
    from pkb.store import Worker

    me = Worker.here()
    while claimed := store.claim(run_id, me):
        if claimed.key == task.key:
            store.finish(claimed, me)
            return
        store.release(claimed, me)
        raise AssertionError("tasks are claimed in the order in which they were added")


def _plain(found: Profile) -> Any:
    import dataclasses
    import json

    return json.loads(json.dumps(dataclasses.asdict(found)))


if __name__ == "__main__":
    where = Path(sys.argv[1])
    print(write_many(where, int(sys.argv[2])) if len(sys.argv) > 2 else " ".join(write_rich(where)))
