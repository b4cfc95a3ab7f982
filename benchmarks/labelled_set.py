"""Candidates of which it is known whether they are right: those of tests/adversaries, the demo's, and mutants made from them.

Every mutant is wrong by construction, so no label depends on a judge:

- a barrier dropped: each barrier of these candidates stands between a write and a read of the same symmetric buffer by
  different ranks (before it is read, or before the next call overwrites it), so without it the two are unordered;
- a peer left out: its data enters the result, or it waits for a flag that never comes;
- an operator swapped, or a variable replaced by a constant, in what makes up the result or orders the ranks (`SWAPS`);
- an end spoilt (`ENDINGS`): a tile left at zero, on all ranks or on one; the result of the call before; a tenth too large; two
  axes exchanged (where there are two that are longer than 1); one output tensor for all calls.

A file of tests/adversaries/labelled whose header says `beyond: ranks=2, ...` (or size) is judged there as well, where nothing
is wrong with it.

Mutations that may leave a right candidate are not made at all: barriers of the library (`dist.barrier()` after a rendezvous,
which waits for all ranks itself), `.clone()` (also where nothing overwrites the original), constants of block sizes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADVERSARIES = ROOT / "tests" / "adversaries"
DEMO = ROOT / "src" / "pkb" / "cli" / "demo_candidates"
DEMO_EXPECTED = {
    "1_allreduce_symmetric.py": "correct",
    "1_allreduce_wrong_on_one_rank.py": "wrong",
    "1_allreduce_race.py": "race",
    "1_allreduce_deadlock.py": "deadlock",
}
FIELD = re.compile(r"^# (\w+): (.+)$", re.MULTILINE)
KINDS = {"honest": "honest", "cheats": "cheat", "faults": "fault", "mistakes": "mistake"}
"""By folder."""
APART = "labelled"
"""A folder with both: subtle mistakes, and right candidates that are unusual."""
BEYOND = "beyond"
"""The kind of what is wrong, but not in the case that is judged: where shapes, ranks or values are others. No judge of that
case can know, so it counts neither as right nor as wrong."""
BASES = (
    "all_gather_push", "all_gather_triton", "all_reduce_double_buffer", "all_reduce_epoch_flags",
    "all_reduce_flags_among_floats", "all_reduce_largest_buffer", "all_reduce_one_rank_adds", "all_reduce_signals",
    "all_reduce_symmetric", "all_reduce_triton", "all_to_all", "broadcast", "clip_grad_norm", "gemm_all_reduce",
    "moe_all_to_all", "reduce_scatter", "ring_attention", "workspace_kept_result_cloned",
)  # fmt: skip
"""Honest candidates that mutants are made from: one of each way to move data and to wait."""
BARRIER = re.compile(r"^( *)\w*handle\.barrier\(channel=\d\)$", re.MULTILINE)
PEERS = re.compile(r"range\((handle\.world_size|world)\)")
SWAPS = (
    ("total += ", "total -= ", "operator"),
    (" ^= 1", " ^= 0", "constant"),
    ("epoch[0] += 1", "epoch[0] += 0", "constant"),
    ("buffer + mine", "buffer - mine", "operator"),
    ("handle.rank * rows, (handle.rank + 1) * rows", "0, rows", "constant"),
    ("handle.rank == src", "handle.rank == 0", "constant"),
    ("get_buffer(src,", "get_buffer(0,", "constant"),
    (".pow(norm_type)", ".pow(1)", "constant"),
    ("norm > max_norm", "norm < max_norm", "operator"),
    ("max_norm / float(norm)", "float(norm) / max_norm", "operator"),
    (" * scale\n", "\n", "operator"),
    ("if causal:", "if False:", "constant"),
    ("handle.rank * count", "0 * count", "constant"),
    ("[handle.rank : handle.rank + 2]", "[0:2]", "constant"),
    ("[handle.rank].copy_(tensor)", "[peer].copy_(tensor)", "constant"),
    ("+ rank * n", "+ 0 * n", "constant"),
    ("A_local.float() @", "A_local.float().abs() @", "operator"),
)
HEAD = """

import torch as _torch
import torch.distributed as _dist

_whole, _kept = solution, {}


def solution(*arguments, **named):
    out = _whole(*arguments, **named)
"""
ENDINGS = {
    "tile left out": ("    out.view(-1)[-max(1, out.numel() // 16) :] = 0\n", "wrong"),
    "tile left out on one rank": (
        "    if _dist.get_rank() == _dist.get_world_size() - 1:\n"
        "        out.view(-1)[-max(1, out.numel() // 16) :] = 0\n",
        "wrong",
    ),
    "result of the call before": (
        "    before = _kept.get(out.shape)\n    _kept[out.shape] = out.clone()\n    out = out if before is None else before\n",
        "wrong|race",
    ),
    "a tenth too large": ("    out = out * 1.1\n", "wrong"),
    "axes exchanged": ("    out = out.transpose(0, -1).contiguous().view(out.shape)\n", "wrong"),
    "one output for all calls": (
        "    out = _kept.setdefault(out.shape, _torch.empty_like(out)).copy_(out)\n",
        "reused_output",
    ),
}
ONE_NUMBER = {"clip_grad_norm"}
"""Bases whose result has no axes to exchange."""
CHANGES_SHAPE = {"moe_all_to_all"}
"""Bases whose results differ in shape from call to call: the one before is hardly ever of the same shape, and one output tensor
for each shape may never be used twice."""


@dataclass(frozen=True)
class Labelled:
    name: str
    kind: str
    text: str
    case: dict[str, str]
    """Problem, ranks, and what else the header of an adversary says."""
    right: bool
    expected: frozenset[str]
    """Verdicts that name it well."""


CHANCE = "sometimes:"
"""How the reason of such an `xfail` begins (tests/adversaries/test_adversaries.py)."""


def header(text: str) -> dict[str, str]:
    return dict(FIELD.findall(text.partition('"""\n')[2].split("\n\n", 1)[0]))


def labelled_set(*, slow: bool = False) -> list[Labelled]:
    return [*_adversaries(slow=slow), *_apart(), *_demo(), *_mutants()]


def left_out(*, slow: bool = False) -> dict[str, str]:
    """Adversaries for the cpu platform that carry no label here, and why."""
    found = {}
    for path, said in _files():
        if why := _why_not(path, said, slow=slow):
            found[f"{path.parent.name}/{path.stem}"] = why
    return found


def by_chance() -> dict[str, str]:
    """Candidates of the set that not every evaluation finds, and why: one run over the set counts them as it happens."""
    headers = {one.name: one.case.get("xfail", "") for one in _adversaries(slow=True)}
    return {name: why.removeprefix(CHANCE).strip() for name, why in headers.items() if why.startswith(CHANCE)}


def _files() -> Iterator[tuple[Path, dict[str, str]]]:
    for folder in KINDS:
        for path in sorted((ADVERSARIES / folder).glob("*.py")):
            said = header(path.read_text(encoding="utf-8"))
            if said["platform"] == "cpu":
                yield path, said


def _why_not(path: Path, said: dict[str, str], *, slow: bool) -> str:
    if "slow" in said and not slow:
        return "takes minutes"
    if "timing" in said["plan"]:
        return "its times are what is judged"
    if path.parent.name != "honest" and "correct" in said["expect"].split("|"):
        return "may be right: its header allows `correct`"
    return ""


def _adversaries(*, slow: bool) -> Iterator[Labelled]:
    for path, said in _files():
        if _why_not(path, said, slow=slow):
            continue
        folder = path.parent.name
        expected = frozenset(said["expect"].split("|"))
        text = path.read_text(encoding="utf-8")
        yield Labelled(f"{folder}/{path.stem}", KINDS[folder], text, said, folder == "honest", expected)


def _apart() -> Iterator[Labelled]:
    for path in sorted((ADVERSARIES / APART).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        said = header(text)
        expected = frozenset(said["expect"].split("|"))
        right = expected == {"correct"}
        if right or "correct" not in expected:
            yield Labelled(path.stem, "unusual" if right else "subtle", text, said, right, expected)
        if "beyond" in said:
            where, _, value = said["beyond"].partition(",")[0].partition("=")
            name = f"{path.stem} at {where} {value}"
            yield Labelled(name, BEYOND, text, said | {where: value}, right=False, expected=frozenset({"correct"}))


def _demo() -> Iterator[Labelled]:
    for name, expected in DEMO_EXPECTED.items():
        text = (DEMO / name).read_text(encoding="utf-8")
        case = {"problem": "1", "ranks": "4"}
        yield Labelled(f"demo/{name}", "demo", text, case, expected == "correct", frozenset({expected}))


def _mutants() -> Iterator[Labelled]:
    for base in BASES:
        text = (ADVERSARIES / "honest" / f"{base}.py").read_text(encoding="utf-8")
        case = header(text)
        for what, changed, expected in _mutations(base, text):
            assert changed != text, (base, what)
            yield Labelled(f"mutant/{base}: {what}", "mutant", changed, case, right=False, expected=expected)


def _mutations(base: str, text: str) -> Iterator[tuple[str, str, frozenset[str]]]:
    unordered = frozenset({"race", "wrong"})
    broken = frozenset({"race", "wrong", "deadlock", "runtime_error"})
    for number, found in enumerate(BARRIER.finditer(text)):
        yield f"barrier {number} dropped", text[: found.start()] + f"{found[1]}pass" + text[found.end() :], unordered
    for number, found in enumerate(PEERS.finditer(text)):
        fewer = f"range({found[1]} - 1)"
        yield f"peer left out, place {number}", text[: found.start()] + fewer + text[found.end() :], broken
    for old, new, what in SWAPS:
        for number, found in enumerate(re.finditer(re.escape(old), text)):
            changed = text[: found.start()] + new + text[found.end() :]
            yield f"{what} swapped, {old.strip()} to {new.strip() or 'nothing'}, place {number}", changed, broken
    for what, (lines, expected) in ENDINGS.items():
        if what == "axes exchanged" and base in ONE_NUMBER:
            continue
        if what in ("result of the call before", "one output for all calls") and base in CHANGES_SHAPE:
            continue
        yield what, f"{text}{HEAD}{lines}    return out\n", frozenset(expected.split("|"))
