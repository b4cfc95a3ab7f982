"""Makes docs/frontier.md from the records that benchmarks/frontier.py has left in docs/records, and docs/frontier-cpu.md from
those of platform cpu in docs/records/frontier-cpu.

    python benchmarks/frontier_page.py [--records FOLDER --page FILE]

Nothing on the pages is typed: every figure is counted from the records or is one of pkb.analysis.published.
"""

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from frontier_claims import claims, share
from frontier_counts import (
    CLASSES,
    COST,
    OURS,
    Tree,
    classes_of,
    could_not,
    count,
    faster,
    is_timed,
    older_verdicts,
    right,
    trees_of,
    untimed,
    verdicts_of,
)
from frontier_heads import CPU_HEAD, HEAD

from pkb.analysis.modes import FailureMode
from pkb.analysis.published import published
from pkb.analysis.samples import Sample
from pkb.problems.registry import default_registry
from pkb.report.frontier import ON_CPU
from pkb.types.plan import PUBLISHED
from pkb.types.taxonomy import PARALLELISM

ROOT = Path(__file__).resolve().parents[1]
HALF = 0.5
DOCS = ROOT / "docs"
RECORDS = DOCS / "records"
Rows = list[Sequence[object]]


def table(head: Sequence[str], rows: Rows) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def section(title: str, text: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *([text, ""] if text else []), *lines]


def counted(samples: Sequence[Sample], mode: FailureMode) -> int | str:
    """None of no files is not none."""
    return count(samples, mode) if samples else "-"


def conditions(trees: Sequence[Tree], folder: Path) -> list[str]:
    seen = Counter(
        (*sample.conditions[:4], str((sample.evaluation or {}).get("plan")))
        for tree in trees
        for sample in (*tree.ours, *tree.as_published)
    )
    where = "; ".join(f"{platform}, {hardware}, {ranks} ranks, size {size}, plan {plan}: {n} verdicts"
                      for (platform, hardware, ranks, size, plan), n in seen.most_common())  # fmt: skip
    judges = Counter(sample.question["judge"] for tree in trees for sample in (*tree.ours, *tree.as_published))
    lines = [f"{where}; " + ", ".join(f"judge version {version}: {n}" for version, n in judges.most_common()) + "."]
    costs = json.loads((folder / COST).read_text()) if (folder / COST).exists() else []
    costs = [cost for cost in costs if cost["verdicts"]]
    if seconds := sum(cost["seconds"] for cost in costs):
        known = [cost for cost in costs if cost["gpu_busy"] is not None]
        evaluations = sum(sum(cost["verdicts"].values()) for cost in costs)
        lines.append(
            f"{evaluations} evaluations, repeated ones included, took {seconds:.0f} s of the machine with builds: "
            f"{seconds / evaluations:.1f} s each, {3600 * evaluations / seconds:.0f} an hour, {seconds / seen.total():.1f} s "
            f"for each verdict here."
        )
        if watched := sum(cost["seconds"] for cost in known):
            busy = sum(cost["gpu_busy"] * cost["seconds"] for cost in known) / watched
            part = "that time" if len(known) == len(costs) else f"{watched:.0f} s of them"
            lines.append(f"The GPU ran a kernel in {busy:.0%} of {part} (NVML).")
    return [" ".join(lines), ""]


def judged(trees: Sequence[Tree]) -> list[str]:
    """How much of it there is: a run may have been cut off."""
    timed = not is_on_cpu(every_sample(trees))
    rows: Rows = []
    for tree in trees:
        cells: list[object] = [tree.name, tree.counts.get("files", "-"), tree.to_judge]
        for plan, samples in ((OURS, tree.ours), (PUBLISHED, tree.as_published)):
            cells += [
                f"{len(samples)} of {tree.to_judge}",
                *([untimed(samples)] if timed else []),
                tree.provisional[plan],
            ]
        rows.append(cells)
    head = ("tree", "files", "to judge", *(
        words
        for plan in (OURS, PUBLISHED)
        for words in (f"judged by `{plan}`", *(["right, not timed"] if timed else []), "in doubt")
    ))  # fmt: skip
    text = (
        "Some files are not judged: those for problems that no longer exist, empty and refused files, problems that cannot run "
        "with this number of ranks, and duplicates. "
        + ("Candidates are first judged several at a time, without times; those that are right are then timed alone. "
           if timed else "")
        + "A file is in doubt if it had a deadlock, a crash or too little memory, or by `published` also a wrong result, while "
        "others ran beside it, and has not yet been judged alone."
    )  # fmt: skip
    return section("What has been judged", text, table(head, rows))


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
            counted(tree.ours, FailureMode.REUSED_OUTPUT),
            *(f"{counted(tree.as_published, mode)} / {counted(tree.ours, mode)}"
              for mode in (FailureMode.UNSUPPORTED, FailureMode.TORCH_VERSION)),
        ))  # fmt: skip
    head = ("tree", "files", "of problems that are gone / empty", "published, single shot", "published, best of 3",
            "as published, here", "ours", "reused output", "unsupported here", "another torch")  # fmt: skip
    timed = "Faster as published is a point estimate against the reference, ours is an interval above 1 against the baseline. "
    text = (
        f"The published columns show right / faster of {published().problems}, on 8 x H100; the others count files judged so "
        f"far. {'' if is_on_cpu(every_sample(trees)) else timed}The last two columns show as published / ours; these count "
        "as judged and never as right. Another torch: written for another version of torch."
    )
    return section("Right, and faster", text, [*table(head, rows), *columns(trees)])


def every_sample(trees: Iterable[Tree]) -> list[Sample]:
    return [sample for tree in trees for sample in (*tree.ours, *tree.as_published)]


def is_on_cpu(samples: Iterable[Sample]) -> bool:
    """Where nothing is timed, so that nothing is missing either."""
    return all(sample.conditions[0] == "cpu" for sample in samples)


def of_judged(samples: Sequence[Sample], *, proven: bool) -> str:
    if samples and is_on_cpu(samples):
        return f"{right(samples)} of {len(samples)}"
    timed = [sample for sample in samples if sample.is_correct and is_timed(sample)]
    fast = str(faster(samples, proven=proven)) if timed or not right(samples) else "?"
    missing = right(samples) - len(timed)
    words = f" ({missing} of them not timed)" if missing else ""
    return f"{right(samples)} / {fast} of {len(samples)}{words}" if samples else "-"


def columns(trees: Sequence[Tree]) -> list[str]:
    lines = [
        "A tree holds one file per problem and does not say whether that is the first answer or the best of three. So it is "
        "not known which published column a tree corresponds to. Only totals are compared, never single candidates. Files that "
        "could not be run here may have been right there:",
        "",
    ]
    for tree in trees:
        if tree.model is None or not tree.is_cuda:
            continue
        found, left = right(tree.as_published), could_not(tree.as_published)
        if not tree.is_whole(tree.as_published):
            part = f"{len(tree.as_published)} of {tree.to_judge}"
            lines.append(
                f"- {tree.name}: {part} judged as published, {found} of them right; totals cannot be compared yet"
            )
            continue
        doubts = tree.provisional[PUBLISHED]
        total = f"{found} right as published of {len(tree.as_published)}"
        total += f", {left} could not be run" if left else ""
        total += f", {doubts} in doubt" if doubts else ""
        left += doubts
        total += f": {found} to {found + left}" if left else ""
        single, best = tree.model.solved.pass_at_1, tree.model.solved.pass_at_3
        near = {"single shot" if abs(n - single) <= abs(n - best) else "best of 3" for n in (found, found + left)}
        words = f"nearer to {near.pop()}" if len(near) == 1 else "as near to the one as to the other"
        lines.append(
            f"- {tree.name}: {total}; single shot has {single} of {published().problems}, best of 3 has {best}: {words}"
        )
    return [*lines, ""]


def by_class(trees: Sequence[Tree]) -> list[str]:
    kinds = {problem.id: problem.taxonomy.parallelism[0] for problem in default_registry().all()}
    categories = {category.parallelism: category for category in published().categories}
    lines: list[str] = []
    head = (
        "class",
        "problems there",
        "here",
        "published, single shot",
        "published, best of 3",
        "as published, here",
        "ours",
    )
    for tree in trees:
        if not tree.is_cuda or tree.model is None:
            continue
        rows: Rows = []
        for kind in PARALLELISM:
            said = categories[kind].results[tree.model.key] if kind in categories else None
            ours, theirs = (
                [sample for sample in samples if kinds.get(sample.problem) == kind]
                for samples in (tree.ours, tree.as_published)
            )
            rows.append((
                kind, categories[kind].problems if kind in categories else "-", Counter(kinds.values())[kind],
                f"{said.pass_at_1} / {said.fast_at_1}" if said else "-",
                f"{said.pass_at_3} / {said.fast_at_3}" if said else "-",
                of_judged(theirs, proven=False), of_judged(ours, proven=True),
            ))  # fmt: skip
        lines += [f"**{tree.name}**", "", *table(head, rows)]
    text = (
        "Cells show right / faster. The classes are ours: the published study does not say which problem is in which class, so "
        "the numbers of problems differ, and rows do not correspond exactly."
    )
    return section("By class", text, lines) if lines else []


def lost(trees: Sequence[Tree]) -> list[str]:
    compared = [(tree.name, tree.compared) for tree in trees if tree.compared is not None]
    if not compared:
        return []
    losses = list(dict.fromkeys(loss for _, found in compared for loss in found.counts))
    rows: Rows = [("files compared", *(found.candidates for _, found in compared))]
    rows.append(("right as published", *(found.right_as_published for _, found in compared)))
    rows += [(f"lost: {loss.words}", *(found.counts.get(loss, 0) for _, found in compared)) for loss in losses]
    rows.append(("right, and not right as published", *(found.only_by_ours for _, found in compared)))
    rows.append(("right", *(found.right for _, found in compared)))
    if any(found.other_rules for _, found in compared):
        rows.append(("not compared: two versions of rules", *(found.other_rules for _, found in compared)))
    text = (
        "Of the files that were judged by both plans: why those that are right as published are not right by ours, according "
        "to the second verdict. The report shows it by file."
    )
    return section("What is lost between the two", text, table(("", *(name for name, _ in compared)), rows))


def modes(trees: Sequence[Tree]) -> list[str]:
    rows: Rows = []
    for mode in FailureMode:
        cells = []
        for tree in trees:
            said: int | str = (
                tree.model.modes.get(mode, 0) if tree.model and tree.is_cuda and mode.is_published else "-"
            )
            here = [counted(samples, mode) for samples in (tree.as_published, tree.ours)]
            cells.append((said, *here))
        if any(n for cell in cells for n in cell if isinstance(n, int)):
            rows.append((mode.words, *(", ".join(map(str, cell)) for cell in cells)))
    there = [published().problems if tree.model and tree.is_cuda else "-" for tree in trees]
    files = [(len(tree.as_published), len(tree.ours)) for tree in trees]
    rows.append(("files", *(f"{n}, {theirs}, {ours}" for n, (theirs, ours) in zip(there, files, strict=True))))
    head = ("published single shot, as published here, ours", *(tree.name for tree in trees))
    return section("Failure modes", "", table(head, rows))


def limit_of(samples: Iterable[Sample]) -> list[float]:
    return [sample.utilisation for sample in samples if sample.utilisation is not None]


def limits(trees: Sequence[Tree]) -> list[str]:
    rows: Rows = []
    for tree in trees:
        for plan, samples in (("as published", tree.as_published), ("ours", tree.ours)):
            if reached := limit_of(samples):
                below = sum(value < HALF for value in reached)
                rows.append((
                    tree.name, plan, f"{len(reached)} of {right(samples)}", f"{statistics.median(reached):.1%}",
                    f"{max(reached):.1%}", share(below, len(reached)),
                ))  # fmt: skip
    if not rows:
        return []
    head = ("tree", "right", "timed", "median share of the limit", "best", "below half of it")
    text = (
        "All files that are right and timed, including slower ones. The limit is the roofline's ideal time on a GPU that all "
        "ranks share ([roofline.md](roofline.md))."
    )
    return section("What correct kernels reach of the limit", text, table(head, rows))


def classes(pairs: Counter[tuple[str, str]], head: str) -> list[str]:
    """How many files of each class of the first place are in which class in the second."""
    columns = [name for name in (*CLASSES, "other") if any(second == name for _, second in pairs)]
    rows: Rows = [
        (name, *(pairs[name, column] or "" for column in columns))
        for name in (*CLASSES, "other")
        if any(first == name for first, _ in pairs)
    ]
    return table((head, *columns), rows)


def same_class(pairs: Counter[tuple[str, str]]) -> str:
    same = sum(count for (first, second), count in pairs.items() if first == second)
    return f"{same} of {pairs.total()} files are in the same class"


def beside_h200(trees: Sequence[Tree], folder: Path) -> list[str]:
    if not (pairs := classes_of(older_verdicts(folder), verdicts_of(trees))):
        return []
    text = (
        "GPT-5.5's files by plan `standard`: rows are verdicts of an older judge on an H200 at size paper, columns those of "
        f"this page. {same_class(pairs)}; [cuda-on-cpu.md](cuda-on-cpu.md#published-candidates) says why others differ."
    )
    return section("Beside an H200", text, classes(pairs, "there"))


def beside_cpu(trees: Sequence[Tree], folder: Path) -> list[str]:
    """Both find some of what the other cannot: races that are proven from a trace, and what large sizes show."""
    if folder.name == ON_CPU or not (pairs := classes_of(verdicts_of(trees), verdicts_of(trees_of(folder / ON_CPU)))):
        return []
    text = (
        f"Rows are verdicts of this page by plan `{OURS}`, columns those of the same files without a GPU at size tiny "
        f"([frontier-cpu.md](frontier-cpu.md)); a race counts as wrong. {same_class(pairs)}. Without a GPU, races are also "
        "proven from recorded calls; a GPU can only provoke them, so a file may be right here and a race there."
    )
    return section("Beside the same files without a GPU", text, classes(pairs, "on the GPU"))


def paths(trees: Sequence[Tree]) -> list[str]:
    names = ("copy_engine", "sm_load_store", "tma", "nvls", "library", "none")
    rows: Rows = []
    for tree in trees:
        used, files = tree.paths, tree.path_files
        rows.append(
            (tree.name, files, *(f"{used[name] / files:.0%}" if tree.has_paths else "not read" for name in names))
        )
    text = (
        "How the source seems to move data, as shares of the files; one file may use several ([paths.md](paths.md)). The "
        "barrier of ParallelKittens uses multicast, so nearly all of its files use `nvls`."
    )
    return section("Paths", text, table(("tree", "files", *names), rows))


def the_claims(trees: Sequence[Tree], folder: Path) -> list[str]:
    text = (
        "These cover the files of the CUDA trees that this platform and this torch can run, and as published those that no "
        "rule of ours refuses. A tree that is not completely judged, or has files in doubt, decides nothing."
    )
    found = claims(trees, folder)
    if is_on_cpu(every_sample(trees)):
        text += " What is right at size tiny without a GPU neither confirms nor denies what is right at larger shapes on eight."
        found = [one._replace(agrees=None) if one.by_verdicts else one for one in found]
    return section("The paper's claims", text, table(("claim", "here", ""), [one.row for one in found]))


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
        beside_h200(trees, folder),
        beside_cpu(trees, folder),
        limits(trees),
        paths(trees),
        the_claims(trees, folder.parent if folder.name == ON_CPU else folder),
    ]
    head = CPU_HEAD if is_on_cpu(every_sample(trees)) else HEAD
    return head + "\n" + "\n".join(line for part in parts for line in part).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, help="one folder of records; both pages of docs if not said")
    parser.add_argument("--page", type=Path, default=DOCS / "frontier.md")
    options = parser.parse_args()
    both = {RECORDS: DOCS / "frontier.md"}
    if any((RECORDS / ON_CPU).glob("frontier-*.jsonl")):
        both[RECORDS / ON_CPU] = DOCS / f"{ON_CPU}.md"
    for records, target in ({options.records: options.page} if options.records else both).items():
        target.write_text(page(records))
        print(target)


if __name__ == "__main__":
    main()
