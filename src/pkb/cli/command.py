"""What all commands have in common: one vocabulary of options, old spellings of it, and help that reads well.

`--problems` names problems, `--problems-dir` is a folder of modules, `--json FILE|-` writes JSON, `--workers`, `--builders` and
`--concurrency` say how many work at a time. Who still has an older spelling in a script is understood, and told the new one.
"""

import re
import sys
from collections.abc import Set
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from pkb.types.errors import UserError

RENAMED = {"--problems-folder": "--problems-dir", "--out": "--json"}
RENAMED |= dict.fromkeys(("--parallel", "--askers"), "--concurrency")
"""Where the command does not have the old name and has the new one: `--out` of `pkb report` is its own."""
_FOLDER, _IDS, _JSON = "--problems-dir", "--problems", "--json"
HELP_NAMES = {"help_option_names": ["-h", "--help"]}

JsonTarget = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE|-", help="Write the result as JSON to a file; - is standard output."),
]


def note_unused_gpus(platform: str) -> None:
    """To standard error: a verdict without a GPU is not what somebody with several expects."""
    from pkb.platforms import registry

    if why := registry.passed_over(registry.create(platform).facts()):
        print(f"note: GPUs of this machine are not used. {why}", file=sys.stderr, flush=True)


class PkbCommand(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        found: list[str] = super().parse_args(ctx, current_spelling(list(args), known))
        return found

    def get_help(self, ctx: Any) -> str:
        return _without_types(super().get_help(ctx))


class PkbGroup(TyperGroup):
    """Where a user's mistake and Ctrl-C stop. Every other exception is a bug of ours and keeps its traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for parameter in self.params for name in parameter.opts}
        words = list(args)
        if _JSON in known and words[:1] == [_JSON] and words[1:2] and words[1] in self.commands:
            words.insert(1, "-")  # `pkb runs --json show RUN`: the word behind it is a command, not a file
        found: list[str] = super().parse_args(ctx, current_spelling(words, known, until=self.commands))
        return found

    def get_help(self, ctx: Any) -> str:
        return _without_types(super().get_help(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            print("error: " + " ".join(str(error).split()), file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("interrupted: no verdict", file=sys.stderr)
            raise typer.Exit(130) from None


def current_spelling(args: list[str], known: set[str], *, until: Any = ()) -> list[str]:
    """The arguments as this version spells them; what was changed is said on standard error."""
    words: list[str] = []
    position = 0
    while position < len(args):
        word = args[position]
        if word == "--" or word in until:
            return [*words, *args[position:]]
        position += 1
        name, equals, value = word.partition("=")
        following = args[position] if position < len(args) else None
        if name not in known and name in RENAMED and RENAMED[name] in known:
            name = _renamed(name, RENAMED[name])
        elif name == _IDS and _FOLDER in known:
            folder = value if equals else following or ""
            if name not in known or (folder and "," not in folder and Path(folder).is_dir()):
                name = _renamed(name, _FOLDER)
        elif name == _JSON and _JSON in known and not equals and (following is None or following.startswith("--")):
            words += [_JSON, "-"]
            continue
        words.append(name + equals + value)
    return words


def _renamed(old: str, new: str) -> str:
    print(f"note: {old} is now called {new}", file=sys.stderr)
    return new


def _without_types(text: str) -> str:
    """`[FILE]... <list[Path]>` is Python's word for it, not a user's."""
    return re.sub(r" <list\[\w+\]>", lambda found: " " * len(found[0]), text)


def given_options(ctx: Any, allowed: Set[str]) -> list[str]:
    """Options of this command line that are not among these parameters, as the user spelled them."""
    found = []
    for parameter in ctx.command.params:
        # By name: typer may bring a click of its own, whose enum is not click's.
        source = ctx.get_parameter_source(parameter.name)
        if source is None or source.name == "DEFAULT" or parameter.name in allowed:
            continue
        spelled = parameter.opts[0]
        if parameter.secondary_opts and ctx.params.get(parameter.name) is False:
            spelled = parameter.secondary_opts[0]
        found.append(spelled if spelled.startswith("-") else f"the argument {parameter.metavar or spelled}")
    return found
