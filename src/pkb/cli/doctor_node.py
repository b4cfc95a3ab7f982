"""`pkb doctor --node`: whether several GPUs of this machine can work together, tried before anybody waits for a verdict."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pkb.cli.machine_facts import Fact

if TYPE_CHECKING:
    from pkb.platforms.nvml import Gpu
    from pkb.types.verdict import Evaluation

NO_PEERS = "see `nvidia-smi topo -p2p r`; in a virtual machine or with ACS on, ask whoever runs it"
NO_LINKS = "without NVLink times are those of PCIe; `nvidia-smi nvlink -s` shows links that are down"
NO_MULTICAST = "candidates that use NVLS get `unsupported`; with NVSwitch: is nvidia-fabricmanager running?"
BUSY = "times are spoilt: end those processes (`nvidia-smi` lists them), or choose other GPUs by CUDA_VISIBLE_DEVICES"
SLOWED = "times are spoilt: see `nvidia-smi -q -d PERFORMANCE,TEMPERATURE`"
LESS_POWER = "times are lower than the datasheet's: `nvidia-smi -pl` sets the limit"


def node() -> dict[str, list[Fact]]:
    """What can be read, and, if nothing forbids it, a small evaluation on all GPUs."""
    from pkb.platforms.node import NodePlatform
    from pkb.problems import get

    platform = NodePlatform()
    facts, gpus = platform.facts(), platform.gpus()
    if not facts.available:
        return {"node": [Fact("node", ok=False, found=facts.why_not)], "links": links(gpus)}
    return {
        "node": [Fact("node", ok=True, found=facts.hardware), *state(gpus)],
        "links": links(gpus),
        "trial": [trial(max(ranks for ranks in get(1).world_sizes if ranks <= len(gpus)))],
    }


def state(gpus: Sequence["Gpu"]) -> list[Fact]:
    from pkb.platforms.conditions import conditions

    read = conditions(gpus)
    doubts = {
        "other processes on the GPU": (read["other processes on the GPU"] in ("none", "unknown"), BUSY),
        "throttling": (read["throttling"] in ("none", "unknown"), SLOWED),
        "power limit": ("by default" not in read["power limit"], LESS_POWER),
    }
    shown = ("driver", "compute mode", "clocks", *doubts)
    return [
        Fact(name, ok=fine, found=read[name], to_do="" if fine else advice)
        for name, (fine, advice) in ((name, doubts.get(name, (True, ""))) for name in shown)
    ]


def links(gpus: Sequence["Gpu"]) -> list[Fact]:
    """A row for each GPU: its NVLinks, and the peers whose memory it cannot read."""
    if len(gpus) < 2:
        return []
    from pkb.platforms.conditions import has_multicast, link_words, unreachable_pairs

    cut = unreachable_pairs(gpus)
    facts = []
    for gpu in gpus:
        missing = {b if a == gpu else a: why for a, b, why in cut if gpu in (a, b)}
        words, joined = link_words(gpu)
        peers = (
            ", ".join(f"no access to GPU {peer.index} ({why})" for peer, why in missing.items()) or "reads all peers"
        )
        to_do = NO_PEERS if missing else "" if joined else NO_LINKS
        facts.append(
            Fact(f"GPU {gpu.index}", ok=joined and not missing, found=f"NVLink: {words}; {peers}", to_do=to_do)
        )
    multicast = has_multicast(gpus)
    words = "the switch can multiply and reduce" if multicast else "none"
    return [*facts, Fact("multicast", ok=multicast, found=words, to_do="" if multicast else NO_MULTICAST)]


def trial(ranks: int) -> Fact:
    """One rendezvous of symmetric memory and one all-reduce of NCCL on as many GPUs as problems have ranks, behind the sandbox:
    the bundled candidate, judged as any other."""
    from pkb.cli.demo import CANDIDATES
    from pkb.judge.session import evaluate
    from pkb.judge.settling import settle
    from pkb.problems.registry import default_registry
    from pkb.types.case import Case
    from pkb.types.errors import UserError
    from pkb.types.job import Job

    try:
        case = settle(Case("1", "node", ranks, "tiny", plan="quick"), default_registry()).case
        job = Job(CANDIDATES / "1_allreduce_symmetric.py", case, timing=False)
        return trial_fact(evaluate(job, progress=partial(print, "trial:", file=sys.stderr, flush=True)), ranks)
    except UserError as error:
        return Fact("all-reduce", ok=False, found=error.message, to_do=error.fix)


def trial_fact(found: "Evaluation", ranks: int) -> Fact:
    from pkb.types.verdict import Verdict

    words = f"{found.verdict} with {ranks} ranks: NCCL, and symmetric memory behind the sandbox"
    if found.verdict is Verdict.CORRECT:
        seconds = sum(found.stage_seconds.values())
        return Fact("all-reduce", ok=True, found=f"{words}, in {seconds:.0f} s")
    stand = "; ".join(dict.fromkeys(f"a rank stands at {state.where!r}" for state in found.rank_states if state.where))
    tail = " | ".join(found.output_tail.strip().splitlines()[-3:])
    return Fact(
        "all-reduce",
        ok=False,
        found=f"{words}: {found.detail}" + "".join(f" ({more})" for more in (stand, tail) if more),
        to_do="`pkb eval --json` of a candidate keeps all that the ranks said; NCCL_DEBUG=INFO says more",
    )
