"""Compares the published paper's claims, one by one, with the records of benchmarks/frontier.py."""

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from frontier_counts import OURS, Tree, could, count, right, share_of_right
from reference_report import claim, with_bounds
from references import FILES, read

from pkb.analysis.modes import FailureMode
from pkb.analysis.published import published
from pkb.roofline.hardware import load
from pkb.types.plan import PUBLISHED

FIRST_TRY = 0.35
UNSOLVED, ABOUT = 0.75, 0.1
RARE = 0.05
"""Nearly absent, of all files."""
BASELINES = 0.9
REFERENCES, MACHINE = "references", "h200-virtual.toml"
"""Where times of references and baselines by themselves lie, and the machine that they are of."""
VALID = (FailureMode.MISMATCH, FailureMode.DEADLOCK, FailureMode.RACE, FailureMode.REUSED_OUTPUT)


class PaperClaim(NamedTuple):
    claim: str
    here: str
    agrees: bool | None
    """None where it cannot be said, or not yet."""
    by_verdicts: bool = False
    """It is about how candidates end, which depends on machine and size."""

    @property
    def row(self) -> tuple[str, str, str]:
        words = {True: "agrees", False: "does not agree", None: "cannot be said"}[self.agrees]
        return self.claim, self.here, words


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "-"


def claims(trees: Sequence[Tree], folder: Path) -> list[PaperClaim]:
    """Of the CUDA trees, which the paper is about. All of them every time: one that cannot be said yet says so."""
    cuda = [tree for tree in trees if tree.is_cuda]
    by_verdicts = [one._replace(by_verdicts=True) for one in (*_solved(cuda), *_failures(cuda))]
    return [*by_verdicts, *_paths(cuda), _baselines(folder), _best_of_3(trees)]


def _solved(cuda: Sequence[Tree]) -> list[PaperClaim]:
    whole = [tree for tree in cuda if tree.is_settled(PUBLISHED)]
    words = [
        f"{tree.name} {share(right(tree.as_published), len(could(tree.as_published)))}"
        + ("" if tree in whole else ", so far")
        for tree in cuda
        if tree.as_published
    ]
    figure = f"right as published, first or best answer: {'; '.join(words)}" if words else "no tree judged as published"
    shares = [share_of_right(tree.as_published) for tree in whole]
    strict = [share_of_right(tree.ours) for tree in cuda if tree.is_settled(OURS)]
    unsolved = 1 - statistics.mean(shares) if shares else None
    means = [
        *([] if unsolved is None else [f"not right as published: {unsolved:.0%} on average of {len(shares)} trees"]),
        *([f"not right: {1 - statistics.mean(strict):.0%} of {len(strict)}"] if strict else []),
    ]
    every = bool(cuda) and len(whole) == len(cuda)
    above = any(value >= FIRST_TRY for value in shares)  # one tree is enough to deny it
    return [
        PaperClaim("fewer than 35 % are right at the first try", figure, False if above else True if every else None),
        PaperClaim(
            "about three quarters stay unsolved",
            "; ".join(means) or "no tree judged to the end",
            unsolved >= UNSOLVED - ABOUT if every and unsolved is not None else None,
        ),
    ]


def _failures(cuda: Sequence[Tree]) -> list[PaperClaim]:
    """As published where a tree is judged so, since races and reused outputs are no failures there; else by ours."""
    chosen = [tree.as_published if tree.is_settled(PUBLISHED) else tree.ours for tree in cuda]
    failed = [sample for samples in chosen for sample in could(samples) if not sample.is_correct]
    there = Counter[FailureMode]()
    for tree in cuda:
        there.update({mode: n for mode, n in tree.model.modes.items() if mode.is_judged} if tree.model else {})
    del there[FailureMode.CORRECT]
    settled = bool(failed) and all(tree.is_settled(PUBLISHED) or tree.is_settled(OURS) for tree in cuda)
    found = []
    for words, named, modes in (
        ("failures are mostly wrong results or deadlocks", "wrong, race or deadlock", VALID),
        ("few failures are syntax", "compile or syntax", (FailureMode.COMPILE,)),
    ):
        here, said = sum(count(failed, mode) for mode in modes), sum(there[mode] for mode in modes)
        figure = f"{named} {share(here, len(failed))}; published for these models {share(said, there.total())}"
        most = here > len(failed) / 2
        agrees = most if modes is VALID else not most
        found.append(PaperClaim(words, figure + ("" if settled else ", so far"), agrees if settled else None))
    return found


def _paths(cuda: Sequence[Tree]) -> list[PaperClaim]:
    known = [tree for tree in cuda if tree.has_paths]
    files, whole = sum(tree.path_files for tree in known), bool(cuda) and all(tree.has_all_paths for tree in cuda)
    used = Counter[str]()
    for tree in known:
        used += tree.paths
    parts = {name: used[name] / max(1, files) for name in ("copy_engine", "sm_load_store", "tma", "nvls")}
    plain = parts["copy_engine"] + parts["sm_load_store"] > 4 * (parts["tma"] + parts["nvls"])
    found = []
    for words, names, agrees in (
        ("copy engines and SM loads and stores dominate", ("copy_engine", "sm_load_store"), plain),
        ("TMA and NVLS are nearly absent", ("tma", "nvls"), max(parts["tma"], parts["nvls"]) <= RARE),
    ):
        said = ", ".join(f"{name} {parts[name]:.0%}" for name in names) + f" of {files} files"
        said += "" if whole else ", so far"
        unread = "texts of kernels were not read: `frontier.py --paths`"
        found.append(PaperClaim(words, said if files else unread, agrees if whole else None))
    return found


def _baselines(folder: Path) -> PaperClaim:
    """Of all problems, by themselves: those that a candidate solved are a choice."""
    words = "over 90 % of baselines are below half of the limit"
    if not (folder / MACHINE).exists():
        return PaperClaim(words, "references were not timed by themselves", None)
    machine, rows = load(str(folder / MACHINE)), read(folder / REFERENCES / FILES["reference"])
    found = [with_bounds(row, machine) for key, row in rows.items() if key[1] == "paper" and row["time_us"]]
    below = sum(row["of_datasheet"] < 0.5 for row in found)
    figure = f"references at `paper`, each by itself: {claim(found)} ([references.md](references.md))"
    return PaperClaim(words, figure, below > BASELINES * len(found) if found else None)


def _best_of_3(trees: Sequence[Tree]) -> PaperClaim:
    """One file a problem says nothing about samples; several backends of one model are the nearest thing to it."""
    said = published().models.values()
    figure = "one file a problem, so nothing about samples; published: " + ", ".join(
        f"{model.name} {model.solved.pass_at_1} to {model.solved.pass_at_3}" for model in said
    )
    families: dict[str, list[Tree]] = {}
    for tree in trees:
        if tree.model and tree.is_settled(PUBLISHED):
            families.setdefault(tree.model.name, []).append(tree)
    for name, family in families.items():
        solved = {tree.name: {one.problem for one in tree.as_published if one.is_correct} for tree in family}
        if len(solved) > 1:
            every = ", ".join(f"{tree} {len(problems)}" for tree, problems in solved.items())
            figure += f"; {name} by any of {len(solved)} backends {len(set().union(*solved.values()))} ({every})"
    return PaperClaim("best of 3 helps", figure, None)
