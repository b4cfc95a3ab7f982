"""`pkb doctor`: what this machine can run, what is missing, and what to do about it."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.command import JsonTarget

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pkb.cli.machine_facts import Fact
    from pkb.platforms.base import PlatformFacts
    from pkb.types.json_value import Json


def doctor(
    json_out: JsonTarget = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Download what is missing: an NCCL that lets several ranks share a GPU.")
    ] = False,
    node: Annotated[
        bool, typer.Option("--node", help="Test several GPUs together: links, multicast, an all-reduce in the sandbox.")
    ] = False,
) -> None:
    """Say which platforms work here and what is missing. Exit status 0 if one works (with --node: that one), else 2."""
    from pkb.cli import machine_facts
    from pkb.cli.output import announced, check_json_target, stdout_console, write_json
    from pkb.platforms import registry as platforms

    check_json_target(json_out)
    if fix:
        _fix()
    with announced("looking at this machine"):
        found = platforms.detect()
    works = any(platform.available for platform in found.values())
    sections = {
        "platforms": [machine_facts.platform_fact(platform) for platform in found.values()],
        "software": machine_facts.software(),
        "compilers": machine_facts.compilers(),
        "backends": machine_facts.backends(),
        "GPU": machine_facts.gpu(),
        "machine": machine_facts.machine(),
        "isolation": machine_facts.isolation(),
    }
    if node:
        from pkb.cli import doctor_node

        tried = doctor_node.node()
        sections |= tried
        works = all(fact.ok for fact in [tried["node"][0], *tried.get("trial", [])])
    if json_out is not None:
        write_json(json_out, _document(found, sections))
    if json_out != "-":
        console = stdout_console()
        for title, facts in sections.items():
            console.print(_table(title, facts))
        if not works:
            console.print(f"{'node does not work' if node else 'no platform works'} here", style="bold red")
        elif node:
            console.print("node works here", style="green")
        else:
            console.print(f"`--platform auto` means {platforms.resolve('auto')} here", style="green")
    raise typer.Exit(0 if works else 2)


def _fix() -> None:
    """What is done goes to standard error: the report follows on standard output."""
    from pkb.platforms import nccl
    from pkb.platforms.cuda import why_no_gpu

    why_not = why_no_gpu()
    if why_not:
        print(f"fix: nothing to get for GPUs: {why_not}", file=sys.stderr)
    elif path := nccl.suitable_nccl():
        print(f"fix: nothing to get: NCCL is there, {path}", file=sys.stderr)
    else:
        print(f"fix: downloading {nccl.wheel()}, about 300 MB", file=sys.stderr)
        print(f"fix: NCCL is now in {nccl.download()}; torch keeps its own", file=sys.stderr)


def _document(found: "dict[str, PlatformFacts]", sections: dict[str, list["Fact"]]) -> "dict[str, Json]":
    from dataclasses import asdict

    return {
        "works": [name for name, platform in found.items() if platform.available],
        "platforms": {name: asdict(platform) for name, platform in found.items()},
        "facts": [asdict(fact) | {"section": title} for title, facts in sections.items() for fact in facts],
    }


def _table(title: str, facts: list["Fact"]) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for fact in facts:
        words = Text(fact.found)
        if fact.to_do:
            words.append(("; " if fact.found else "") + fact.to_do, style="dim")
        status = Text("ok", style="green") if fact.ok else Text("missing", style="yellow")
        table.add_row(Text(f"  {fact.name}"), status, words)
    return Group(Text(title, style="bold"), table)
