"""`pkb show 13`: everything that a person needs to know before writing a kernel for a problem."""

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.completion import problem_names
from pkb.cli.problems_option import ProblemsFolder
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from pkb.problems.base import Problem
    from pkb.roofline.rows import BoundsRow
    from pkb.types.cost import Cost
    from pkb.types.hardware import Hardware
    from pkb.types.json_value import Json


def show(
    problem: Annotated[
        str,
        typer.Argument(help="Id, name or stem: 13, gemm_allreduce, 13_gemm_allreduce.", autocompletion=problem_names),
    ],
    ranks: Annotated[int, typer.Option(help="Shapes and costs for this many ranks.")] = 4,
    dtype: Annotated[
        str | None, typer.Option(help="Shapes and costs in this dtype. Default: bf16 if the problem supports it.")
    ] = None,
    hardware: Annotated[
        str, typer.Option(help="Bounds on this machine: a name that `pkb roofline` knows, or a .toml file.")
    ] = "h100x8",
    json_out: JsonTarget = None,
    folder: ProblemsFolder = None,
) -> None:
    """Show one problem: what it is, its reference, arguments, sizes, cost and the bounds on its time."""
    from pkb.cli.output import check_json_target, stdout_console, write_json
    from pkb.cli.problems import as_row
    from pkb.cli.problems_option import open_registry

    check_json_target(json_out)
    chosen = open_registry(folder).get(problem)
    if ranks < 1:
        raise UserError(f"--ranks {ranks} is not a number of ranks", "give 1 or more")
    dtype = dtype or chosen.default_dtype
    if dtype not in chosen.dtypes:
        raise UserError(
            f"problem {chosen.stem} does not run in {dtype!r}", f"it runs in {', '.join(chosen.dtypes)}: give --dtype"
        )
    from pkb.roofline.hardware import load

    shown = describe(chosen, ranks=ranks, dtype=dtype, hardware=load(hardware))
    if json_out is not None:
        write_json(json_out, as_row(chosen) | shown.to_dict())
    if json_out != "-":
        _print(stdout_console(), chosen, shown)


@dataclass(frozen=True)
class CaseWork:
    """Arguments, costs and bounds of a case that can run."""

    arguments: dict[str, str]
    """Of rank 0, in words."""
    differing_by_rank: list[str]
    argument_bytes: int
    cost: "Cost"
    bounds: "dict[str, BoundsRow] | None"
    """By ceilings; None where the machine does not join so many GPUs, or no cost is declared."""


@dataclass(frozen=True)
class ShownCase:
    size: dict[str, int]
    why_not: str | None
    work: CaseWork | None
    not_on_one_gpu: str | None = None
    """Why so many ranks cannot share a GPU."""

    def to_dict(self) -> "dict[str, Json]":
        """The cost's fields beside the others."""
        shown: dict[str, Json] = {"size": self.size, "why_not": self.why_not, "not_on_one_gpu": self.not_on_one_gpu}
        if self.work is None:
            return shown
        work = asdict(self.work)
        cost = work.pop("cost")
        return shown | work | cost | {"cost_note": cost.pop("note")}


@dataclass(frozen=True)
class Description:
    docstring: str
    signature: str
    reference_source: str
    layout: str
    comparison: list[str]
    mutates: list[str]
    ranks: int
    dtype: str
    hardware: str
    cases: dict[str, ShownCase]

    def to_dict(self) -> "dict[str, Json]":
        return asdict(self) | {"cases": {name: case.to_dict() for name, case in self.cases.items()}}


def describe(problem: "Problem", *, ranks: int, dtype: str, hardware: "Hardware") -> Description:
    return Description(
        docstring=problem.docstring,
        signature=f"solution{problem.signature}",
        reference_source=problem.reference_source,
        layout=problem.layout,
        comparison=_comparison(problem),
        mutates=list(problem.mutates),
        ranks=ranks,
        dtype=dtype,
        hardware=hardware.name,
        cases={
            name: _describe_case(problem, name, ranks=ranks, dtype=dtype, hardware=hardware) for name in problem.sizes
        },
    )


def _comparison(problem: "Problem") -> list[str]:
    """One sentence for each output or mutated argument that has a rule of its own, and what they are compared with."""
    from pkb.problems.compare import rule_words

    truth = (
        "outputs are compared with the reference computed on arguments widened to float64"
        if problem.truth == "float64"
        else "outputs are compared with the reference in its own dtype"
    )
    sentences = [truth]
    if isinstance(problem.compare, tuple):
        sentences += [f"output {index}: {rule_words(rule)}" for index, rule in enumerate(problem.compare)]
    else:
        sentences.append(f"every output: {rule_words(problem.compare)}")
    sentences += [f"argument {name}, changed in place: {rule_words(rule)}" for name, rule in problem.mutates.items()]
    sentences.append("all other arguments must be unchanged" if problem.mutates else "arguments must be unchanged")
    if problem.returns_input:
        sentences.append("an output may be an argument itself")
    return sentences


def _describe_case(problem: "Problem", size_name: str, *, ranks: int, dtype: str, hardware: "Hardware") -> ShownCase:
    """Arguments are drawn on the meta device: shapes without memory, so that a real size can be shown on a laptop."""
    import torch

    from pkb.problems.base import DTYPES
    from pkb.problems.draw import Draw

    size = problem.sizes[size_name]
    if (why_not := problem.why_not(size_name, ranks, dtype)) is not None:
        return ShownCase(dict(size), why_not, None)

    def drawn(rank: int, kind: str) -> dict[str, str]:
        draw = Draw(
            secret=b"shape", call=0, rank=rank, world_size=ranks, size=size, dtype=DTYPES[dtype],
            device=torch.device("meta"), layout=problem.layout, kind=kind,
        )  # fmt: skip
        return {name: _words(value) for name, value in problem.inputs(draw).items()}

    kinds = list(problem.kinds) or [""]
    per_rank = [drawn(rank, kinds[0]) for rank in range(ranks)]
    by_kind = {kind: drawn(0, kind) for kind in kinds}
    arguments = {}
    for name, words in per_rank[0].items():
        differ = len({said[name] for said in by_kind.values()}) > 1
        arguments[name] = ", ".join(f"{said[name]} ({kind})" for kind, said in by_kind.items()) if differ else words
    cost = problem.cost(size, ranks, DTYPES[dtype].itemsize)
    work = CaseWork(
        arguments=arguments,
        differing_by_rank=[name for name in per_rank[0] if any(r[name] != per_rank[0][name] for r in per_rank)],
        argument_bytes=problem.argument_bytes(size_name, ranks, dtype),
        cost=cost,
        bounds=_bounds(problem, size_name, ranks=ranks, dtype=dtype, hardware=hardware) if cost.is_known else None,
    )
    return ShownCase(dict(size), None, work, problem.why_not_on_one_gpu(size_name, ranks))


def _bounds(
    problem: "Problem", size: str, *, ranks: int, dtype: str, hardware: "Hardware"
) -> "dict[str, BoundsRow] | None":
    from pkb.roofline.bounds import CEILINGS
    from pkb.roofline.rows import bounds_row

    if ranks > hardware.domain:
        return None
    return {
        which: bounds_row(problem, size=size, ranks=ranks, dtype=dtype, hardware=hardware, ceilings=which)
        for which in CEILINGS
    }


def _words(value: Any) -> str:
    import torch

    from pkb.problems.draw import GroupRef

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, GroupRef):
        return f"process group ({value.axis})"
    if isinstance(value, list | tuple):
        words = [_words(item) for item in value]
        if len(words) > 1 and len(set(words)) == 1:
            return f"{type(value).__name__} of {len(words)} x {words[0]}"
        return f"{type(value).__name__} [{', '.join(words)}]"
    if isinstance(value, dict):
        return "dict {" + ", ".join(f"{key}: {_words(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _print(console: "Console", problem: "Problem", shown: Description) -> None:
    from rich.syntax import Syntax
    from rich.text import Text

    taxonomy = problem.taxonomy
    console.print(Text(f"{problem.id}  {problem.name}", style="bold"))
    console.print(Text(_reflow(problem.docstring) + "\n"))
    facts = {
        "source": problem.source,
        "parallelism": ", ".join(taxonomy.parallelism),
        "layer": taxonomy.layer,
        "stage": ", ".join(taxonomy.stage),
        "pattern": ", ".join(taxonomy.pattern),
        "system": taxonomy.system,
        "fusable": taxonomy.fusable or "-",
        "ranks": ", ".join(map(str, problem.world_sizes)),
        "dtypes": ", ".join(problem.dtypes),
        "layout": problem.layout,
        "version": str(problem.version),
        "comparison": ";\n".join(shown.comparison),
    }
    console.print(_facts_table(facts))
    console.print(Text(f"\n{shown.signature}\n", style="bold"))
    source = shown.reference_source.rstrip()
    # Wrapped source cannot be copied and run, so a pipe gets it verbatim and a terminal gets it highlighted.
    if console.is_terminal:
        console.print(Syntax(source, "python", theme="ansi_dark", background_color="default"))
    else:
        console.file.write(source + "\n")
    for name, case in shown.cases.items():
        _print_case(console, name, case, shown)


def _print_case(console: "Console", name: str, case: ShownCase, shown: Description) -> None:
    from rich.text import Text

    from pkb.types.units import bytes_words, flops_words

    numbers = ", ".join(f"{key}={value}" for key, value in case.size.items())
    console.print(Text.assemble("\n", (f"size {name}", "bold"), f" ({numbers}), {shown.ranks} ranks, {shown.dtype}"))
    work = case.work
    if work is None:
        console.print(Text(f"  not with this: {case.why_not}"))
        return
    facts = {
        argument: words + ("  (rank 0; differs by rank)" if argument in work.differing_by_rank else "")
        for argument, words in work.arguments.items()
    }
    cost = work.cost
    facts["per rank"] = f"{bytes_words(work.argument_bytes)} of arguments"
    if case.not_on_one_gpu is not None:
        facts["one GPU"] = case.not_on_one_gpu
    if not cost.is_known:
        facts["limit"] = "not known: the problem declares no cost (docs/adding-a-problem.md, Costs)"
        console.print(_facts_table(facts, indent=2))
        return
    link = f"{bytes_words(cost.link_sent_bytes)} sent, {bytes_words(cost.link_received_bytes)} received"
    if cost.switch_sent_bytes is not None:
        sent, received = bytes_words(cost.switch_sent_bytes), bytes_words(cost.switch_received_bytes or 0)
        link += f"; with in-switch reduction or multicast {sent} sent, {received} received"
    facts |= {
        "cost": f"{flops_words(cost.flops)}, {bytes_words(cost.hbm_bytes)} of memory traffic",
        "link": f"{link}; {cost.phases} dependent steps",
    }
    facts["limit"] = _limit_words(work.bounds, shown.hardware)
    if cost.note:
        facts["note"] = cost.note
    console.print(_facts_table(facts, indent=2))


def _limit_words(bounds: "dict[str, BoundsRow] | None", hardware: str) -> str:
    from pkb.types.units import binds_words, time_words

    if bounds is None:
        return f"{hardware} does not join so many GPUs: give --hardware"
    ideal, reachable = bounds["ideal"], bounds["reachable"]
    return (
        f"{time_words(ideal.bound_us)} on {hardware}, {time_words(ideal.unoverlapped_us)} without overlap "
        f"({binds_words(ideal.binds, ideal.floor_us)}); best kernels reach {time_words(reachable.bound_us)}, "
        f"latency {time_words(reachable.floor_us)}"
    )


def _reflow(docstring: str) -> str:
    """Paragraphs as one line each, for the console to wrap; what is indented or marked as a list stays as it is."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip())
    return "\n\n".join(
        text if re.search(r"^(\s|[-*|]|\d+\.)", text, re.MULTILINE) else " ".join(text.split()) for text in paragraphs
    )


def _facts_table(facts: dict[str, str], *, indent: int = 0) -> Any:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in facts.items():
        table.add_row(name, Text(value))
    return Padding(table, (0, 0, 0, indent))
