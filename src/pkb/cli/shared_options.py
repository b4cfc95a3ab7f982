"""Options that several commands share."""

from collections.abc import Set
from pathlib import Path
from typing import Annotated

import typer

from pkb.cli.command import given_options
from pkb.cli.completion import problem_names, run_names
from pkb.types.errors import UserError
from pkb.types.plan import PLANS

Problems = Annotated[
    str | None, typer.Argument(help="Ids, names, stems, ranges: 1-8,13; or all.", autocompletion=problem_names)
]
NamedProblems = Annotated[str | None, typer.Option("--problems", metavar="IDS", help="The same as an option.")]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="As inspect-ai names it: openai/MODEL, anthropic/MODEL, openai-api/SERVICE/MODEL, vllm/MODEL, ...",
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        help="Programming model: cuda (raw), cuda-kit, triton, cute, parallelkittens, nvshmem or nccl-device."
    ),
]
Samples = Annotated[int, typer.Option(help="How many for each problem.")]
Ranks = Annotated[int, typer.Option(help="How many ranks.")]
Size = Annotated[str | None, typer.Option(help="tiny, paper, real, odd or decode. Default: paper, on cpu tiny.")]
Dtype = Annotated[str | None, typer.Option(help="Default: bf16 if the problem supports it.")]
Timed = Annotated[
    bool | None, typer.Option("--timing/--no-timing", help="Whether to time it. Default: yes, on cpu no.")
]
PlanName = Annotated[str, typer.Option("--plan", help=f"How thorough the evaluation is: {', '.join(PLANS)}.")]
HardwareName = Annotated[str, typer.Option("--hardware", help="The machine in the prompt: a name, or a .toml file.")]
Shots = Annotated[int | None, typer.Option(help="Number of worked examples. Default: 1 if the backend has any.")]
PartsFolder = Annotated[Path | None, typer.Option("--parts", metavar="DIR", help="Your own prompt parts.")]
Temperature = Annotated[float | None, typer.Option(help="Default: the provider's.")]
MaxTokens = Annotated[int | None, typer.Option(help="Limit for one answer. Default: the provider's.")]
TimeLimit = Annotated[float, typer.Option(metavar="SECONDS", help="For one answer, retries included.")]
Retries = Annotated[int, typer.Option(help="After rate limits and lost connections.")]
Concurrency = Annotated[int, typer.Option(help="Requests to the model at a time; evaluations run one at a time.")]
PricesFile = Annotated[
    Path | None, typer.Option("--prices", metavar="FILE", help="Prices of tokens; see docs/models.md.")
]
RunName = Annotated[str, typer.Option("--name", help="A name for the run.")]
Resume = Annotated[
    str | None,
    typer.Option(
        metavar="RUN", help="Continue a run: id, the beginning of one, a name, or latest.", autocompletion=run_names
    ),
]
OutFolder = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Also write the candidates to a folder.")]


_AT_ANY_TIME = frozenset({"resume", "evaluate", "out", "store", "json_out"})


def check_resume(ctx: typer.Context, resume: str | None, *, allowed: Set[str] = _AT_ANY_TIME) -> None:
    """A run keeps what it was begun with; an option that cannot have an effect is not taken in silence."""
    if resume is None:
        return
    if changed := given_options(ctx, allowed):
        raise UserError(
            f"--resume {resume} continues the run with its original settings, and {', '.join(changed)} would change them",
            "leave it out, or begin a new run without --resume",
        )


def path_text(path: Path | None) -> str | None:
    """As a run keeps it, which may be resumed from another folder."""
    return None if path is None else str(path.absolute())
