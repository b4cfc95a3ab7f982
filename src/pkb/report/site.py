"""Puts a report together: reads the runs once, then writes page after page."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pkb
from pkb.analysis.machine_tables import kernel_table, machine_table, reference_table, stored
from pkb.analysis.published import Published, published
from pkb.platforms.registry import names, traits
from pkb.problems.base import Problem
from pkb.problems.registry import Registry
from pkb.report import charts, tables
from pkb.report.board import VIEWS, BoardRow, View, board, heat_map
from pkb.report.breakdown import failure_modes, paths_used, progress
from pkb.report.candidate_page import candidate_context
from pkb.report.comparing import compared_contenders, pairs
from pkb.report.contenders import Contender, Entrant, contenders
from pkb.report.frontier import read_frontier, write_frontier
from pkb.report.pages import Pages, whole_site
from pkb.report.problem_page import problem_context
from pkb.report.published_rows import published_rows
from pkb.report.source_view import SourceView, candidate_view, view
from pkb.report.tries import Try, read_tries
from pkb.store import Reader, Run

Tell = Callable[[str], None]
SOURCES_KEPT = 256


@dataclass(frozen=True)
class BuiltSite:
    index: Path
    pages: int
    contenders: int
    tries: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Options:
    title: str = "ParallelKernelBench"
    figures: bool = False
    published: bool = True
    records: Path | None = None
    """Where `pkb records merge` has put other machines, and where verdicts of published kernels are kept."""


def build(
    reader: Reader, runs: Sequence[Run], *, out: Path, registry: Registry, options: Options, tell: Tell
) -> BuiltSite:
    """Writes the site of these runs to `out`, which must be new, empty or an earlier report."""
    started = time.monotonic()
    with whole_site(out) as folder:
        tell("reading the runs")
        tries = read_tries(reader, runs)
        everybody = contenders(tries)
        tell(f"scoring {len(tries)} tries of {len(everybody)} collections")
        work = _Work(reader, runs, everybody, registry=registry, options=options, folder=folder)
        work.overview(tell)
        work.problems(tell)
        work.candidates(tell)
        if options.figures:
            from pkb.report.figures import draw_all

            tell("drawing figures")
            draw_all(folder / "figures", rows=work.rows, modes=work.modes, heat=work.heat, steps=work.steps)
        pages = work.pages.count
    return BuiltSite(out / "index.html", pages, len(everybody), len(tries), round(time.monotonic() - started, 2))


class _Work:
    def __init__(
        self,
        reader: Reader,
        runs: Sequence[Run],
        everybody: Sequence[Contender],
        *,
        registry: Registry,
        options: Options,
        folder: Path,
    ) -> None:
        self.reader, self.runs, self.everybody = reader, runs, everybody
        self.known: dict[int, Problem] = {problem.id: problem for problem in registry.all()}
        self.published: Published | None = published() if options.published else None
        self.machines = stored(options.records) if options.records else []
        self.frontier = read_frontier(options.records, self.published)
        self.registry = registry
        self.rows: dict[View, list[BoardRow]] = board(everybody)
        self.heat = heat_map(everybody, self.known)
        self.modes = failure_modes(everybody, self.published)
        self.steps = progress(everybody)
        self.everything: list[Entrant] = [(contender, each) for contender in everybody for each in contender.tries]
        self.entrants: dict[int, list[Entrant]] = {}
        for contender, each in self.everything:
            self.entrants.setdefault(each.task.problem_id, []).append((contender, each))
        self.stems = {number: problem.stem for number, problem in self.known.items()}
        for number, found in self.entrants.items():
            self.stems.setdefault(number, tables.problem_file(found[0][1]))
        self.pages = Pages(
            folder,
            {
                "title": options.title,
                "made_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                "version": pkb.__version__,
                "with_figures": options.figures,
                "has_agents": bool(self.steps),
                "has_published": self.published is not None,
                "has_machines": bool(self.machines),
                "has_frontier": bool(self.frontier.rows or self.frontier.unreadable),
                "stems": self.stems,
                "platform_notes": {name: note for name in names() if (note := traits(name).note)},
            },
        )
        self.view_of = lru_cache(SOURCES_KEPT)(self._view_of)

    def _view_of(self, sha: str) -> SourceView:
        return candidate_view(self.reader.objects.get(sha))

    # -- pages about everybody ----------------------------------------------------------------------------------------

    def overview(self, tell: Tell) -> None:
        tell("writing the leaderboard")
        pages, everybody = self.pages, self.everybody
        pages.copy_static()
        ours = published_rows(self.published) if self.published else []
        measured = [row for rows in self.rows.values() for row in rows]
        summaries = [self.reader.summary(run) for run in self.runs]
        pages.page(
            "index.html", "index.html", rows=self.rows, views=VIEWS, heat=self.heat, everybody=everybody,
            published_rows=ours, categories=self.published.categories if self.published else (),
            summaries=summaries, curves=charts.curves(measured, ours),
            shown_platforms=sorted({name for one in everybody for name in one.platforms}),
        )  # fmt: skip
        tables.write_board(pages, measured, ours)
        tables.write_heat(pages, self.heat, everybody)
        tables.write_runs(pages, summaries)

        by_problem = [
            tables.problem_row(number, self.known.get(number), self.entrants.get(number, []))
            for number in sorted({*self.known, *self.entrants})
        ]
        pages.page("problems.html", "problems.html", problems=by_problem, everybody=everybody)
        tables.write_problems(pages, by_problem)

        pages.data("verdicts", tables.verdict_rows(self.everything, self.stems))
        pages.page("verdicts.html", "verdicts.html", count=len(self.everything))
        tables.write_verdicts(pages, "verdicts", self.everything)

        paths = paths_used(everybody)
        pages.page("failures.html", "failures.html", modes=self.modes, paths=paths)
        tables.write_breakdown(pages, self.modes, paths)

        agent, problems = (self.published.agent, self.published.problems) if self.published else (None, 0)
        chart = charts.progress(self.steps, agent, problems)
        pages.page("agents.html", "agents.html", steps=self.steps, agent=agent, chart=chart)
        tables.write_progress(pages, self.steps)
        if self.published:
            pages.page("published.html", "published.html", published=self.published, published_rows=ours)
            tables.write_published(pages, ours, self.published.categories)
        if self.frontier.rows or self.frontier.unreadable:
            write_frontier(pages, self.frontier, stems=self.stems)
        self._machines()
        self._comparisons()

    def _machines(self) -> None:
        if not self.machines:
            return
        made = {
            "machines": machine_table(self.machines),
            "kernels_by_machine": kernel_table(self.machines, self.registry),
            "references_by_machine": reference_table(self.machines, self.registry),
        }
        for name, table in made.items():
            if table is not None:
                self.pages.table(name, table.head, [dict(zip(table.head, row, strict=True)) for row in table.rows])
        self.pages.page("machines.html", "machines.html", tables=made)

    def _comparisons(self) -> None:
        chosen = compared_contenders(self.everybody)
        names = {number: self.stems[number] for number in self.entrants}
        self.pages.page(
            "compare.html", "compare.html", chosen=chosen, left_out=len(self.everybody) - len(chosen),
            page_data={"names": names},
        )  # fmt: skip
        for pair in pairs(self.everybody):
            name = f"{pair.first.id}__{pair.second.id}"
            self.pages.data(f"compare/{name}", pair.readings)
            tables.write_pair(self.pages, name, pair, self.stems)

    # -- pages about one ----------------------------------------------------------------------------------------------

    def problems(self, tell: Tell) -> None:
        tell(f"writing {len(self.stems)} problems")
        limits = {}
        for number, stem in self.stems.items():
            entrants = self.entrants.get(number, [])
            problem = self.known.get(number)
            context: Mapping[str, Any] = (
                problem_context(problem, entrants) if problem else {"problem": None, "best": None}
            )
            if problem:
                limits[stem] = context["limits"]
            if entrants:
                self.pages.data(f"p/{stem}", tables.verdict_rows(entrants, self.stems))
                tables.write_verdicts(self.pages, f"problems/{stem}", entrants)
            best = context["best"]
            self.pages.page(
                f"p/{stem}.html", "problem.html", **context, number=number, stem=stem, count=len(entrants),
                counts=tables.outcome_counts(entrants), best_source=self._source(best[1]) if best else None,
                reference=view(problem.reference_source) if problem else None,
                neighbours=tables.neighbours(self.stems, number),
            )  # fmt: skip
        tables.write_limits(self.pages, limits)

    def candidates(self, tell: Tell) -> None:
        told = time.monotonic()
        for done, (contender, each) in enumerate(self.everything, start=1):
            context = candidate_context(self.reader, each, contender, self._source(each))
            known = self.known.get(each.task.problem_id)
            self.pages.page(f"c/{each.slug}.html", "candidate.html", **context, known=known)
            if context["judged"]:
                self.pages.json(f"c/{each.slug}.json", context["verdict_json"])
            if trace := context["trace_events"]:
                self.pages.json(f"c/{each.slug}.trace.json", trace)
                self.pages.data(f"trace/{each.slug}", trace)
            if time.monotonic() - told > 2:
                tell(f"writing candidates: {done} of {len(self.everything)}")
                told = time.monotonic()

    def _source(self, each: Try) -> SourceView | None:
        sha = each.last.candidate_sha if each.last else each.task.candidate_sha
        return self.view_of(sha) if sha else None
