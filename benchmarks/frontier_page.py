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

from frontier_counts import Tree, could, count, faster, is_timed, right, share_of_right, trees_of, untimed

from pkb.analysis.modes import FailureMode
from pkb.analysis.published import published
from pkb.analysis.samples import Sample
from pkb.problems.registry import default_registry
from pkb.types.taxonomy import PARALLELISM

ROOT = Path(__file__).resolve().parents[1]
COST = "frontier-cost.json"
HALF = 0.5
RARE = 0.05
"""Nearly absent, of all files."""
HEAD = """# The published table, judged here

Made by `benchmarks/frontier_page.py` from `docs/records/frontier-*.jsonl`; do not edit.

The kernels behind the published table are in the history of the benchmark that this one descends from. They are not ours: what
is kept here are ids, hashes, verdicts, times and figures. Anybody can fetch and judge them:

```
git clone https://github.com/togethercomputer/ParallelKernelBench upstream && git -C upstream checkout dab0830
python benchmarks/frontier.py upstream/solutions_* --out docs/records --lanes 3     (resumable; --budget SECONDS)
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


def conditions(trees: Sequence[Tree], folder: Path) -> list[str]:
    seen = Counter(sample.conditions[:4] for tree in trees for sample in (*tree.ours, *tree.as_published))
    where = "; ".join(f"{platform}, {hardware}, {ranks} ranks, size {size}: {n} verdicts"
                      for (platform, hardware, ranks, size), n in seen.most_common(3))  # fmt: skip
    judges = Counter(sample.question["judge"] for tree in trees for sample in (*tree.ours, *tree.as_published))
    lines = [f"{where}; " + ", ".join(f"judge version {version}: {n}" for version, n in judges.most_common()) + "."]
    costs = json.loads((folder / COST).read_text()) if (folder / COST).exists() else []
    costs = [cost for cost in costs if cost["verdicts"]]
    if seconds := sum(cost["seconds"] for cost in costs):
        busy = sum((cost["gpu_busy"] or 0) * cost["seconds"] for cost in costs) / seconds
        evaluations = sum(sum(cost["verdicts"].values()) for cost in costs)
        lines.append(
            f"{evaluations} evaluations, second looks included, took {seconds:.0f} s of the machine with builds: "
            f"{seconds / evaluations:.1f} s each, {3600 * evaluations / seconds:.0f} an hour, {seconds / seen.total():.1f} s "
            f"for each verdict here. The GPU ran a kernel in {busy:.0%} of that time (NVML)."
        )
    return [" ".join(lines), ""]


def judged(trees: Sequence[Tree]) -> list[str]:
    """How much of it there is: a run may have been cut off."""
    rows: Rows = []
    for tree in trees:
        cells: list[object] = [tree.name, tree.counts.get("files", "-"), tree.to_judge]
        for plan, samples in (("standard", tree.ours), ("published", tree.as_published)):
            cells += [f"{len(samples)} of {tree.to_judge}", untimed(samples), tree.provisional[plan]]
        rows.append(cells)
    head = ("tree", "files", "to judge", *(
        words for plan in ("standard", "published") for words in (f"judged by `{plan}`", "right, not timed", "in doubt")
    ))  # fmt: skip
    return ["## What has been judged", "", "Files for problems that are gone, and empty ones, are not to be judged. Candidates "
            "are judged several beside each other first, without times; those that are right are then timed alone. In doubt: a "
            "deadlock, a crash or a failure for want of memory, by `published` also a wrong result, that was seen beside "
            "others and not yet alone.", "", *table(head, rows)]  # fmt: skip


def totals(trees: Sequence[Tree]) -> list[str]:
    rows: Rows = []
    for tree in trees:
        solved = tree.model.solved if tree.model and tree.is_cuda else None
        rows.append((
            tree.name, tree.counts.get("files", len(tree.ours)),
            f"{tree.counts.get('gone', 0)} / {tree.counts.get('empty', 0)}",
            f"{solved.pass_at_1} / {solved.fast_at_1}" if solved else "-",
            f"{solved.pass_at_3} / {solved.fast_at_3}" if solved else "-",
            of_judged(tree.as_published, proven=False),
            of_judged(tree.ours, proven=True),
            sum(sample.is_reused for sample in tree.ours),
            sum(sample.mode is FailureMode.UNSUPPORTED for sample in tree.ours),
            sum(sample.mode is FailureMode.TORCH_VERSION for sample in tree.ours),
        ))  # fmt: skip
    head = ("tree", "files", "of problems that are gone / empty", "published, single shot", "published, best of 3",
            "as published, here", "ours", "reused output", "unsupported here", "another torch")  # fmt: skip
    return [
        "## Right / faster",
        "",
        "Published: of 87, on 8 x H100. Here: of the files judged so far. Faster as published is a point "
        "estimate against the reference, ours is an interval above 1 against the baseline.",
        "",
        *table(head, rows),
        *columns(trees),
    ]


def of_judged(samples: Sequence[Sample], *, proven: bool) -> str:
    timed = [sample for sample in samples if sample.is_correct and is_timed(sample)]
    fast = str(faster(samples, proven=proven)) if timed or not right(samples) else "?"
    missing = right(samples) - len(timed)
    words = f" ({missing} of them not timed)" if missing else ""
    return f"{right(samples)} / {fast} of {len(samples)}{words}" if samples else "-"


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
        if not tree.is_whole(tree.as_published):
            part = f"{len(tree.as_published)} of {tree.to_judge}"
            lines.append(
                f"- {tree.name}: {part} judged, {found} of them right as published; totals cannot be compared yet"
            )
            continue
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
        used, files = tree.paths, tree.path_files
        rows.append((tree.name, files, *(f"{used[name] / files:.0%}" for name in names)))
    return ["## Paths", "", "How the text seems to move data, as shares of the files; one file may use several "
            "([paths.md](paths.md)).", "", *table(("tree", "files", *names), rows)]  # fmt: skip


def claims(trees: Sequence[Tree]) -> list[str]:
    """The paper's, one by one, on these kernels."""
    cuda = [tree for tree in trees if tree.is_cuda and tree.as_published]
    tree_of = {tree.name: tree for tree in cuda}
    everything = [sample for tree in cuda for sample in tree.as_published]
    rows: Rows = []

    def say(claim: str, figure: str, agrees: bool | None) -> None:
        rows.append((claim, figure, {True: "agrees", False: "does not agree", None: "cannot be said"}[agrees]))

    if cuda:
        shares = {tree.name: share_of_right(tree.as_published) for tree in cuda}
        words = ", ".join(
            f"{name} {value:.0%} of {len(could(tree_of[name].as_published))}" for name, value in shares.items()
        )
        say("fewer than 35 % are right at the first try", f"right as published: {words}", max(shares.values()) < 0.35)
        strict = {tree.name: share_of_right(tree.ours) for tree in trees if tree.is_cuda and tree.ours}
        unsolved = 1 - statistics.mean(shares.values())
        mean = f"not right as published: {unsolved:.0%} on average"
        by_ours = f"; not right: {1 - statistics.mean(strict.values()):.0%}" if strict else ""
        say("about three quarters stay unsolved", mean + by_ours, unsolved >= 0.65)
    failed = [
        sample
        for tree in trees
        if tree.is_cuda
        for sample in could(tree.as_published or tree.ours)
        if not sample.is_correct
    ]
    if failed:
        valid = sum(
            sample.mode in (FailureMode.MISMATCH, FailureMode.DEADLOCK, FailureMode.RACE, FailureMode.REUSED_OUTPUT)
            for sample in failed
        )
        text = count(failed, FailureMode.COMPILE)
        words = f"wrong, race or deadlock {share(valid, len(failed))}, compile or syntax {share(text, len(failed))}"
        say(
            "failures are mostly valid code with wrong results or deadlocks, not syntax", words, valid > len(failed) / 2
        )
    files = sum(tree.path_files for tree in trees)
    used = Counter[str]()
    for tree in trees:
        used += tree.paths
    by_path = {name: used[name] / files for name in ("copy_engine", "sm_load_store", "tma", "nvls")}
    said = {name: f"{name} {value:.0%}" for name, value in by_path.items()}
    plain = by_path["copy_engine"] + by_path["sm_load_store"] > 4 * (by_path["tma"] + by_path["nvls"])
    say("copy engines and SM loads and stores dominate", f"{said['copy_engine']}, {said['sm_load_store']}", plain)
    rare = max(by_path["tma"], by_path["nvls"]) <= RARE
    say("TMA and NVLS are nearly absent", f"{said['tma']}, {said['nvls']} of {files} files", rare)
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
            f"{len(any_of)}, by CUDA alone {len(solved[0])}", None)  # fmt: skip
    return (
        [
            "## The paper's claims",
            "",
            "Of the files judged so far that one GPU with this torch can run.",
            "",
            *table(("claim", "here", ""), rows),
        ]
        if rows
        else []
    )


def page(folder: Path) -> str:
    trees = trees_of(folder)
    if not trees:
        return HEAD + "\nThere are no records yet: the commands above make them, on a machine with one GPU.\n"
    trees.sort(key=lambda tree: (not tree.is_cuda, tree.name))
    parts = [
        conditions(trees, folder),
        judged(trees),
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
