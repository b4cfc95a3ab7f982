"""Makes docs/frontier.md from the records that benchmarks/frontier.py has left in docs/records.

    python benchmarks/frontier_page.py [--records docs/records] [--page docs/frontier.md]

Nothing on the page is typed: every figure is counted from the records or is one of pkb.analysis.published.
"""

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pkb.analysis.lost import AS_PUBLISHED, PlanComparison, compare_plans
from pkb.analysis.modes import FailureMode
from pkb.analysis.published import published
from pkb.analysis.results import read_results
from pkb.analysis.samples import Sample
from pkb.problems.registry import default_registry
from pkb.types.taxonomy import PARALLELISM

ROOT = Path(__file__).resolve().parents[1]
COUNTS = "frontier-trees.json"
HALF = 0.5
HEAD = """# The published table, judged here

Made by `benchmarks/frontier_page.py` from `docs/records/frontier-*.jsonl`; do not edit.

The kernels behind the published table are in the history of the benchmark that this one descends from. They are not ours: what
is kept here are ids, hashes, verdicts, times and figures. Anybody can fetch and judge them:

```
git clone https://github.com/togethercomputer/ParallelKernelBench upstream && git -C upstream checkout dab0830
python benchmarks/frontier.py upstream/solutions_* --out docs/records     (resumable; --budget SECONDS)
python benchmarks/frontier_page.py
```

**Right as published**: by the plan `published` (even inputs, one call, all-close with 1e-2, the result read at once, 5 x 20
timed calls after 500, point estimates). **Right**: by the plan `standard` (uneven and odd inputs, tolerances of the dtype,
races, another number of ranks, intervals). Where our reference differs from the published one, both plans have ours
([differences.md](differences.md)), and values of arguments are ours too: this is not upstream's harness, and a difference of
single candidates may be one of problems. Times are of ranks that share one GPU: they say nothing about NVLink.
"""
Rows = list[Sequence[object]]


def table(head: Sequence[str], rows: Rows) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "-"


class Tree:
    """One collection of records, by both plans."""

    def __init__(self, name: str, ours: list[Sample], as_published: list[Sample], counts: dict[str, Any]) -> None:
        self.name, self.ours, self.as_published, self.counts = name, ours, as_published, counts
        self.model = published().models.get(name.partition(" ")[0])
        self.compared: PlanComparison | None = compare_plans(ours, as_published)

    @property
    def paths(self) -> Counter[str]:
        """As `frontier.py --paths` counted them, or as the verdicts say: without tree-sitter those of CUDA are unknown."""
        if said := self.counts.get("paths"):
            return Counter(said)
        return Counter(
            path for each in self.ours or self.as_published for path in set((each.evaluation or {}).get("paths", ()))
        )

    @property
    def is_cuda(self) -> bool:
        return self.name.endswith(" cuda")


def trees_of(folder: Path) -> list[Tree]:
    files = sorted(folder.glob("frontier-*.jsonl"))
    if not files:
        return []
    collections = read_results(files).collections()
    counts = json.loads((folder / COUNTS).read_text()) if (folder / COUNTS).exists() else {}
    names = list(dict.fromkeys(name.removesuffix(AS_PUBLISHED) for name in collections))
    return [
        Tree(name, collections.get(name, []), collections.get(name + AS_PUBLISHED, []), counts.get(name, {}))
        for name in names
    ]


def right(samples: Iterable[Sample]) -> int:
    return sum(sample.is_correct for sample in samples)


def faster(samples: Iterable[Sample], *, proven: bool) -> int:
    speeds = [sample.speed for sample in samples if sample.speed is not None]
    return sum(speed.beats(1, proven=True) if proven else speed.value > 1 for speed in speeds)


def conditions(trees: Sequence[Tree]) -> list[str]:
    seen = Counter(sample.conditions[:4] for tree in trees for sample in (*tree.ours, *tree.as_published))
    seconds = [
        sum((sample.evaluation or {}).get("stage_seconds", {}).values()) for tree in trees for sample in tree.ours
    ]
    where = "; ".join(f"{platform}, {hardware}, {ranks} ranks, size {size}: {n} verdicts"
                      for (platform, hardware, ranks, size), n in seen.most_common(3))  # fmt: skip
    took = (
        f" A verdict of plan `standard` took {statistics.mean(seconds):.1f} s in its stages on average."
        if seconds
        else ""
    )
    return [f"{where}.{took}", ""]


def totals(trees: Sequence[Tree]) -> list[str]:
    rows: Rows = []
    for tree in trees:
        solved = tree.model.solved if tree.model and tree.is_cuda else None
        rows.append((
            tree.name, tree.counts.get("files", len(tree.ours)),
            f"{tree.counts.get('gone', 0)} / {tree.counts.get('empty', 0)}",
            f"{solved.pass_at_1} / {solved.fast_at_1}" if solved else "-",
            f"{solved.pass_at_3} / {solved.fast_at_3}" if solved else "-",
            f"{right(tree.as_published)} / {faster(tree.as_published, proven=False)} of {len(tree.as_published)}",
            f"{right(tree.ours)} / {faster(tree.ours, proven=True)} of {len(tree.ours)}",
            sum(sample.mode is FailureMode.UNSUPPORTED for sample in tree.ours),
            sum(sample.mode is FailureMode.TORCH_VERSION for sample in tree.ours),
        ))  # fmt: skip
    head = ("tree", "files", "of problems that are gone / empty", "published, single shot", "published, best of 3",
            "as published, here", "ours", "unsupported here", "another torch")  # fmt: skip
    return ["## Right / faster", "", "Published: of 87, on 8 x H100.", "", *table(head, rows), *columns(trees)]


def columns(trees: Sequence[Tree]) -> list[str]:
    lines = [
        "Which column a tree can be compared with: each holds one file a problem, without numbers of samples, so nothing in it "
        "says whether that is the first answer or the best of three. Totals are compared, never single candidates:",
        "",
    ]
    for tree in trees:
        if tree.model is None or not tree.as_published or not tree.is_cuda:
            continue
        found, solved = right(tree.as_published), tree.model.solved
        near = "single shot" if abs(found - solved.pass_at_1) <= abs(found - solved.pass_at_3) else "best of 3"
        lines.append(
            f"- {tree.name}: {found} right as published of {len(tree.as_published)} judged; single shot has "
            f"{solved.pass_at_1} of 87, best of 3 has {solved.pass_at_3}: nearer to {near}"
        )
    return [*lines, ""]


def by_class(trees: Sequence[Tree]) -> list[str]:
    kinds = {problem.id: problem.taxonomy.parallelism[0] for problem in default_registry().all()}
    categories = {category.parallelism: category for category in published().categories}
    lines = ["## By class", "", "Right: published single shot / best of 3, as published here, ours. Classes are ours; the "
             "published study does not say which problem is in which, so counts of problems differ.", ""]  # fmt: skip
    chosen = [tree for tree in trees if tree.is_cuda]
    rows: Rows = []
    for kind in PARALLELISM:
        cells = []
        for tree in chosen:
            said = categories[kind].results.get(tree.model.key) if tree.model and kind in categories else None
            ours = [sample for sample in tree.ours if kinds.get(sample.problem) == kind]
            theirs = [sample for sample in tree.as_published if kinds.get(sample.problem) == kind]
            column = f"{said.pass_at_1} / {said.pass_at_3}" if said else "-"
            cells.append(f"{column}, {right(theirs)} of {len(theirs)}, {right(ours)} of {len(ours)}")
        rows.append((kind, *cells))
    return [*lines, *table(("class", *(tree.name for tree in chosen)), rows)] if chosen else []


def lost(trees: Sequence[Tree]) -> list[str]:
    compared = [(tree.name, tree.compared) for tree in trees if tree.compared is not None]
    if not compared:
        return []
    losses = list(dict.fromkeys(loss for _, found in compared for loss in found.counts))
    rows: Rows = [(loss.words, *(found.counts.get(loss, 0) for _, found in compared)) for loss in losses]
    rows.append(("right, and not right as published", *(found.only_by_ours for _, found in compared)))
    return ["## What is lost between the two", "", "Candidates that are right as published and not right, by the evidence in "
            "the second verdict.", "", *table(("", *(name for name, _ in compared)), rows)]  # fmt: skip


def modes(trees: Sequence[Tree]) -> list[str]:
    rows: Rows = []
    for mode in FailureMode:
        cells = []
        for tree in trees:
            said = tree.model.modes.get(mode, 0) if tree.model and tree.is_cuda else "-"
            cells.append(f"{said}, {count(tree.as_published, mode)}, {count(tree.ours, mode)}")
        if any(cell not in ("0, 0, 0", "-, 0, 0") for cell in cells):
            rows.append((mode.words, *cells))
    head = ("published single shot, as published here, ours", *(tree.name for tree in trees))
    return ["## Failure modes", "", *table(head, rows)]


def count(samples: Iterable[Sample], mode: FailureMode) -> int:
    return sum(sample.mode is mode for sample in samples)


def limit_of(samples: Iterable[Sample]) -> list[float]:
    return [sample.utilisation for sample in samples if sample.utilisation is not None]


def limits(trees: Sequence[Tree]) -> list[str]:
    rows: Rows = []
    for tree in trees:
        reached = limit_of(tree.ours) or limit_of(tree.as_published)
        if reached:
            best = max(reached)
            below = sum(value < HALF for value in reached)
            rows.append(
                (
                    tree.name,
                    len(reached),
                    f"{statistics.median(reached):.1%}",
                    f"{best:.1%}",
                    share(below, len(reached)),
                )
            )
    if not rows:
        return []
    head = ("tree", "correct and timed", "median share of the limit", "best", "below half of it")
    return ["## What correct kernels reach of the limit", "", "All correct ones; the limit is the roofline's ideal time "
            "([roofline.md](roofline.md)).", "", *table(head, rows)]  # fmt: skip


def paths(trees: Sequence[Tree]) -> list[str]:
    names = ("copy_engine", "sm_load_store", "tma", "nvls", "library", "none")
    rows: Rows = []
    for tree in trees:
        files = tree.ours or tree.as_published
        used = tree.paths
        rows.append((tree.name, len(files), *(f"{used[name] / len(files):.0%}" for name in names)))
    return ["## Paths", "", "How the text seems to move data, as shares of the files; one file may use several "
            "([paths.md](paths.md)).", "", *table(("tree", "files", *names), rows)]  # fmt: skip


def claims(trees: Sequence[Tree]) -> list[str]:
    """The paper's, one by one, on these kernels."""
    cuda = [tree for tree in trees if tree.is_cuda and tree.as_published]
    everything = [sample for tree in cuda for sample in tree.as_published]
    rows: Rows = []

    def say(claim: str, figure: str, agrees: bool | None) -> None:
        rows.append((claim, figure, {True: "agrees", False: "does not agree", None: "cannot be said"}[agrees]))

    if cuda:
        shares = {tree.name: right(tree.as_published) / len(tree.as_published) for tree in cuda}
        words = ", ".join(f"{name} {value:.0%}" for name, value in shares.items())
        say("fewer than 35 % are right at the first try", f"right as published: {words}", max(shares.values()) < 0.35)
        strict = {tree.name: right(tree.ours) / len(tree.ours) for tree in cuda if tree.ours}
        unsolved = 1 - statistics.mean(shares.values())
        mean = f"not right as published: {unsolved:.0%} on average"
        by_ours = f"; not right: {1 - statistics.mean(strict.values()):.0%}" if strict else ""
        say("about three quarters stay unsolved", mean + by_ours, unsolved >= 0.65)
        failed = [sample for sample in everything if not sample.is_correct and sample.is_judged]
        valid = sum(sample.mode in (FailureMode.MISMATCH, FailureMode.DEADLOCK, FailureMode.RACE) for sample in failed)
        text = count(failed, FailureMode.COMPILE)
        words = f"wrong or deadlock {share(valid, len(failed))}, compile or syntax {share(text, len(failed))}"
        say(
            "failures are mostly valid code with wrong results or deadlocks, not syntax", words, valid > len(failed) / 2
        )
    files = [sample for tree in trees for sample in (tree.ours or tree.as_published)]
    if files:
        used = Counter[str]()
        for tree in trees:
            used += tree.paths
        words = ", ".join(
            f"{name} {used[name] / len(files):.0%}" for name in ("copy_engine", "sm_load_store", "tma", "nvls")
        )
        dominate = used["copy_engine"] + used["sm_load_store"] > 4 * (used["tma"] + used["nvls"])
        say("copy engines and SM loads and stores dominate, TMA and NVLS are nearly absent", words, dominate)
    limits_of: dict[int, float] = {}
    for sample in (*everything, *(sample for tree in trees for sample in tree.ours)):
        if sample.reference_utilisation is not None:
            limits_of.setdefault(sample.problem, sample.reference_utilisation)
    if limits_of:
        below = sum(value < HALF for value in limits_of.values())
        say("over 90 % of baselines are below half of the limit", f"{share(below, len(limits_of))} of the timed problems",
            below > 0.9 * len(limits_of))  # fmt: skip
    family = [tree for tree in trees if tree.name.startswith("gemini-3-pro") and tree.as_published]
    solved = [{sample.problem for sample in tree.as_published if sample.is_correct} for tree in family]
    if len(solved) > 1:
        any_of: set[int] = set().union(*solved)
        say("best of 3 helps", f"one file a problem, so not by samples; Gemini 3 Pro by the best of {len(solved)} backends "
            f"{len(any_of)}, by CUDA alone {len(solved[0])}", len(any_of) > len(solved[0]))  # fmt: skip
    return ["## The paper's claims", "", *table(("claim", "here", ""), rows)] if rows else []


def page(folder: Path) -> str:
    trees = trees_of(folder)
    if not trees:
        return HEAD + "\nThere are no records yet: the commands above make them, on a machine with one GPU.\n"
    trees.sort(key=lambda tree: (not tree.is_cuda, tree.name))
    parts = [
        conditions(trees),
        totals(trees),
        by_class(trees),
        lost(trees),
        modes(trees),
        limits(trees),
        paths(trees),
        claims(trees),
    ]
    return HEAD + "\n" + "\n".join(line for part in parts for line in part).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=ROOT / "docs" / "records")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "frontier.md")
    options = parser.parse_args()
    options.page.write_text(page(options.records))
    print(options.page)


if __name__ == "__main__":
    main()
