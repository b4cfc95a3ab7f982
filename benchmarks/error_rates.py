"""How often is the judge wrong? Judges candidates whose label is known, and counts false accepts and false rejects.

    python benchmarks/error_rates.py --out out/error-rates [--limit 40] [--only mutant] [--page docs/error-rates.md]
    python benchmarks/error_rates.py --out out/error-rates --repeat 20 [--limit 5]

The set and its labels are in `labelled_set.py`; candidates are written to a temporary folder and judged with plan quick. Every
verdict is written to OUT/verdicts.jsonl as soon as it is there, and what has been judged (same text, same platform) is not
judged again, so that it can be stopped at any time; `--minutes` stops it. Verdicts of two judges are never mixed: each carries
the hash of all files of the package, and OUT is refused if it holds those of another. `--limit` takes so many of what is left,
in an order that mixes all kinds and is the same every time. `--repeat` judges a few candidates again and again instead: each
must get one verdict; with an OUT of its own, `--page` replaces that section of the page and leaves the rest as it is. Without
`--repeat`, `--page` writes the page from all that has been judged, and keeps that section. Exit status 1 if there is a false
accept or reject, or a candidate with two verdicts; 2 if OUT is another judge's.
"""

import argparse
import datetime
import hashlib
import json
import math
import platform
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from labelled_set import BEYOND, Labelled, by_chance, labelled_set, left_out

import pkb
from pkb.analysis.machine_archive import files_of, judge_sha256
from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import PLANS
from pkb.types.verdict import Verdict

NO_VERDICT = {Verdict.HARNESS_ERROR, Verdict.UNSUPPORTED}
REPEATED = (
    "honest/all_reduce_symmetric", "honest/all_gather_push", "honest/ring_attention", "honest/all_reduce_double_buffer",
    "mistakes/race_missing_end_barrier", "mistakes/returned_static_output", "mistakes/reused_and_racy",
    "mistakes/first_barrier_missing", "mistakes/another_order_on_each_rank", "faults/segfault", "clips_whatever_the_norm",
)  # fmt: skip
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Judged:
    name: str
    kind: str
    key: str
    """Of text and case: judged once."""
    platform: str
    right: bool
    expected: tuple[str, ...]
    verdict: str
    detail: str
    seconds: float
    run: int = 0
    """Which repetition, from 1; 0 where it was judged once."""
    judge: str = ""
    """Whose verdict it is: the hash of the package."""

    @property
    def no_verdict(self) -> bool:
        return self.verdict in NO_VERDICT and not self.named

    @property
    def false_accept(self) -> bool:
        return not self.right and self.verdict == Verdict.CORRECT and self.kind != BEYOND

    @property
    def false_reject(self) -> bool:
        return self.right and self.verdict != Verdict.CORRECT and not self.no_verdict

    @property
    def named(self) -> bool:
        return self.verdict in self.expected


def this_judge() -> str:
    """Of all files of the package: any change makes another judge."""
    return judge_sha256(files_of(Path(pkb.__file__).parent))[:16]


def judge(one: Labelled, folder: Path, platform: str, *, run: int = 0, who: str = "") -> Judged:
    path = folder / f"{re.sub(r'[^A-Za-z0-9]+', '_', one.name)}.py"
    path.write_text(one.text, encoding="utf-8")
    said = one.case
    case = Case(
        said["problem"], platform, int(said["ranks"]), said.get("size", "tiny"), said.get("dtype", "bf16"), "quick"
    )
    job = Job(path, case, custom_plan=PLANS["quick"], call_limit_s=float(said.get("call_limit_s", 20)))
    if "memory_limit_gib" in said:
        job = Job(
            path, case, custom_plan=PLANS["quick"], call_limit_s=job.call_limit_s,
            memory_limit_bytes=int(float(said["memory_limit_gib"]) * 2**30),
        )  # fmt: skip
    start = time.monotonic()
    found = evaluate(job)
    return Judged(
        one.name, one.kind, key_of(one, platform), platform, one.right, tuple(sorted(one.expected)), found.verdict.value,
        found.detail[:200], round(time.monotonic() - start, 1), run, who,
    )  # fmt: skip


def key_of(one: Labelled, platform: str) -> str:
    return hashlib.sha256(json.dumps([one.name, one.text, platform]).encode()).hexdigest()[:16]


def binomial_interval(hits: int, tries: int) -> tuple[float, float]:
    """Clopper-Pearson: the rates under which so few, or so many, hits are not less likely than 2.5 %."""
    tail = (1 - CONFIDENCE) / 2

    def at_most(count: int, rate: float) -> float:
        return math.fsum(math.comb(tries, i) * rate**i * (1 - rate) ** (tries - i) for i in range(count + 1))

    def root(above: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if above(middle) else (low, middle)
        return low

    low = 0.0 if hits == 0 else root(lambda rate: 1 - at_most(hits - 1, rate) < tail)
    high = 1.0 if hits == tries else root(lambda rate: at_most(hits, rate) > tail)
    return low, high


def read(path: Path) -> list[Judged]:
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [Judged(**row | {"expected": tuple(row["expected"])}) for row in rows]


def planned(everything: Sequence[Labelled], *, only: str | None) -> list[Labelled]:
    """In an order that mixes all kinds, the same every time."""
    chosen = [one for one in everything if only in (None, one.kind)]
    random.Random(0).shuffle(chosen)
    return chosen


def rate_words(hits: int, tries: int) -> str:
    if not tries:
        return "none judged"
    low, high = binomial_interval(hits, tries)
    return f"{hits} of {tries} ({100 * hits / tries:.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f} %)"


def page(
    rows: Sequence[Judged],
    excluded: Mapping[str, str],
    *,
    in_all: int = 0,
    who: str = "",
    beyond: Mapping[str, str] | None = None,
) -> str:
    once = [row for row in rows if not row.run and row.kind != BEYOND]
    platforms = sorted({row.platform for row in once})
    wrong, right = [row for row in once if not row.right], [row for row in once if row.right]
    judged_wrong, judged_right = ([row for row in group if row.named or not row.no_verdict] for group in (wrong, right))
    accepted, rejected = sum(r.false_accept for r in judged_wrong), sum(r.false_reject for r in judged_right)
    named, nothing = sum(r.named for r in judged_wrong), sum(r.no_verdict for r in once)
    lines = [
        "# The judge's own error rates",
        "",
        "Made by `benchmarks/error_rates.py`: candidates known to be correct or wrong, judged with plan quick.",
        "What is in the set, and why every mutant in it is wrong, is said in `benchmarks/labelled_set.py`. Intervals are",
        "Clopper-Pearson's. They hold for candidates like these; kernels of a model are others, and a mistake that nobody has",
        "thought of is in no set.",
        "",
        f"Judged: {len(once)} of the {in_all or len(once)} candidates of the set, on {', '.join(platforms) or 'no platform'}, "
        f"by the judge `{who or 'unknown'}` (the hash of the package) with Python {platform.python_version()} and torch "
        f"{metadata.version('torch')}; {sum(row.seconds for row in once) / 60:.0f} minutes.",
        "",
        f"- False accepts (wrong, and called correct): {rate_words(accepted, len(judged_wrong))}.",
        f"- False rejects (right, and not called correct): {rate_words(rejected, len(judged_right))}.",
        f"- No verdict (a harness error, or unsupported where that was not expected): {nothing} of {len(once)}.",
        f"- Wrong ones whose verdict names the fault: {rate_words(named, len(judged_wrong))}.",
        "",
        "| kind | judged | false accepts | false rejects | named well | seconds each |",
        "|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(row.kind for row in once):
        mine = [row for row in once if row.kind == kind]
        lines.append(
            f"| {kind} | {len(mine)} | {sum(r.false_accept for r in mine)} | {sum(r.false_reject for r in mine)} | "
            f"{sum(r.named for r in mine)} | {sum(r.seconds for r in mine) / len(mine):.1f} |"
        )
    if odd := [row for row in once if not row.named]:
        lines += ["", "Not as expected:", "", "| candidate | expected | verdict | detail |", "|---|---|---|---|"]
        for row in odd:
            words = row.detail.replace("|", "/").replace("\n", " ")
            lines.append(f"| {row.name} | {', '.join(row.expected)} | {row.verdict} | {words} |")
        lines += ["", "Why, where it is known, stands at the top of the candidate's file (`tests/adversaries`)."]
    if chance := by_chance():
        lines += ["", "Found in some evaluations only, and counted above as this one was:", ""]
        lines += [f"- {name}: {why}." for name, why in chance.items()]
    lines += elsewhere([row for row in rows if row.kind == BEYOND and not row.run], beyond or {})
    lines += ["", AFTER, "", "Adversaries without a label here:", ""]
    for why in dict.fromkeys(excluded.values()):
        lines.append(f"- {why}: {', '.join(name for name, said in excluded.items() if said == why)}.")
    return "\n".join(lines) + "\n"


def elsewhere(rows: Sequence[Judged], where: Mapping[str, str]) -> list[str]:
    """What is wrong, but not in the case that was judged."""
    if not rows:
        return []
    lines = [
        "", "## Wrong elsewhere", "",
        "These candidates are wrong with other numbers of ranks, sizes or values than those that they were judged with. A",
        "verdict speaks of the calls that were checked, so `correct` is no false accept, and it says no more than that: for",
        "another number of ranks or another size, judge there (plan `standard` tries 3 ranks too).", "",
        "| candidate | judged with | verdict |", "|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        name, _, value = where.get(row.name, "").partition("=")
        number, comma, why = value.partition(",")
        words = f"{number} ranks" if name == "ranks" else f"size {number}"
        lines.append(f"| {row.name.partition(' at ')[0]} | {words}{comma}{why} | {row.verdict} |")
    return lines


AGAIN, AFTER = "## The same candidate again and again", "## Left out"


def again(rows: Sequence[Judged], *, who: str) -> str:
    """The section on what was judged again and again."""
    every = len({row.name for row in rows})
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [AGAIN, "", f"{every} candidates, {len(rows)} evaluations by the judge `{who}`, {today}.", ""]
    lines += ["| candidate | times | verdicts |", "|---|---|---|"]
    for name in dict.fromkeys(row.name for row in rows):
        counts = Counter(row.verdict for row in rows if row.name == name)
        words = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
        lines.append(f"| {name} | {counts.total()} | {words} |")
    return "\n".join([*lines, "", ""])


def section_of(text: str) -> str:
    """The section of a page that is there, or nothing."""
    _, mark, rest = text.partition(AGAIN)
    return mark + rest.partition(AFTER)[0] if mark else ""


def with_section(text: str, section: str) -> str:
    if old := section_of(text):
        text = text.replace(old, "")
    before, after, rest = text.partition(AFTER)
    return before + section + after + rest


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--platform", default="cpu")
    options.add_argument("--limit", type=int, default=10**6)
    options.add_argument(
        "--only", choices=["honest", "cheat", "fault", "mistake", "subtle", "unusual", BEYOND, "demo", "mutant"]
    )
    options.add_argument("--slow", action="store_true", help="also those that take minutes")
    options.add_argument("--repeat", type=int, default=0, metavar="N")
    options.add_argument("--page", type=Path)
    options.add_argument("--minutes", type=float, default=math.inf)
    args = options.parse_args()
    who, started = this_judge(), time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    log = args.out / "verdicts.jsonl"
    done = read(log)
    if others := {row.judge for row in done} - {who}:
        print(f"{log} has verdicts of another judge ({', '.join(sorted(others))}; this is {who}): use another --out")
        return 2
    everything = labelled_set(slow=args.slow)
    if args.repeat:
        chosen = [one for one in everything if one.name in REPEATED][: args.limit]
        work = [(one, run) for one in chosen for run in range(1, args.repeat + 1)]
    else:
        work = [(one, 0) for one in planned(everything, only=args.only)]
    known = {(row.key, row.run) for row in done}
    work = [(one, run) for one, run in work if (key_of(one, args.platform), run) not in known]
    work = work if args.repeat else work[: args.limit]
    with tempfile.TemporaryDirectory(prefix="pkb-error-rates-") as folder, log.open("a") as writer:
        for number, (one, run) in enumerate(work, 1):
            if time.monotonic() - started > 60 * args.minutes:
                break
            row = judge(one, Path(folder), args.platform, run=run, who=who)
            writer.write(json.dumps(asdict(row)) + "\n")
            writer.flush()
            done.append(row)
            error = "FALSE ACCEPT" if row.false_accept else "FALSE REJECT" if row.false_reject else ""
            surprise = error or ("" if row.named else "not as expected")
            left_min = (time.monotonic() - started) / number * (len(work) - number) / 60
            words = f"{number} of {len(work)}: {row.name}: {row.verdict} ({row.seconds} s, {left_min:.0f} min left) {surprise}"
            print(words.rstrip(), flush=True)
    texts = {key_of(one, args.platform) for one in everything}
    current = [row for row in done if row.key in texts]
    written = args.page.read_text() if args.page and args.page.exists() else ""
    if args.repeat:
        section = again([row for row in current if row.run], who=who)
        print(section)
        text = with_section(written, section)
    else:
        beyond = {one.name: one.case["beyond"] for one in everything if one.kind == BEYOND}
        counted = len(everything) - len(beyond)
        text = page(current, left_out(slow=args.slow), in_all=counted, who=who, beyond=beyond)
        print("\n".join(line for line in text.splitlines() if line.startswith("- ") and ":" in line)[:1200])
        text = with_section(text, section_of(written))
    if args.page:
        args.page.write_text(text)
    verdicts: dict[str, set[str]] = {}
    for row in current:
        if row.run:
            verdicts.setdefault(row.name, set()).add(row.verdict)
    wavering = [name for name, found in verdicts.items() if len(found) > 1]
    return int(bool(wavering) or any(row.false_accept or row.false_reject for row in current))


if __name__ == "__main__":
    sys.exit(main())
