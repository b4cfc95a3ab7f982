"""What an agent can do besides talking: hand in a kernel, read the problem again, read what its kernel may use."""

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path

from inspect_ai.tool import Tool, tool

from pkb.generate.prompt import Prompt
from pkb.generate.prompt_parts import Parts

SUBMIT = "submit_kernel"
PROBLEM_PARTS = ("problem", "reference", "precision")
KIT_PAGES = ("kit", "pkb.cuh", "rules", "programming-model")
MAX_OUTPUT_BYTES = 64 * 1024


def agent_tools(prompt: Prompt, submit: Callable[[str], Awaitable[str]]) -> list[Tool]:
    """`submit` has a kernel judged and says what was found."""

    @tool(name=SUBMIT)
    def submit_kernel() -> Tool:
        async def execute(code: str) -> str:
            """Hand in a kernel. It is built, run on all ranks, checked, provoked for races and timed; you are told the result.

            Args:
                code: The whole Python file, which defines `solution` at top level.
            """
            return await submit(code)

        return execute

    @tool
    def read_problem() -> Tool:
        async def execute() -> str:
            """Read the problem again: its statement, arguments, reference and tolerances."""
            return "\n\n".join(text for name, text in prompt.parts if name in PROBLEM_PARTS)

        return execute

    @tool
    def read_kit_docs() -> Tool:
        async def execute(name: str) -> str:
            """Read about what a kernel may use.

            Args:
                name: `kit` (the Python module: compile, launch, pointers to peers), `pkb.cuh` (the CUDA header: signals,
                    barriers, copies), `rules` (what makes a kernel across GPUs right) or `programming-model`.
            """
            return kit_page(name, backend=prompt.backend)

        return execute

    return [submit_kernel(), read_problem(), read_kit_docs()]


def kit_page(name: str, *, backend: str) -> str:
    """Only pages of a fixed list: a name is never a path."""
    if name == "kit":
        return _kit_module()
    if name == "pkb.cuh":
        import pkb.kit

        return (Path(pkb.kit.__file__).parent / "device" / "pkb.cuh").read_text(encoding="utf-8")
    if name == "rules":
        return Parts().source("rules").partition("#}")[2].strip()
    if name == "programming-model":
        return Parts().source(f"model-{backend}").partition("#}")[2].strip()
    return f"there is no page {name[:80]!r}; pages are {', '.join(KIT_PAGES)}"


def _kit_module() -> str:
    from pkb import kit

    lines = [inspect.getdoc(kit) or "", ""]
    for name in kit.__all__:
        thing = getattr(kit, name)
        try:
            signature = str(inspect.signature(thing)) if callable(thing) else ""
        except ValueError:  # some built-in types have none
            signature = ""
        about = (inspect.getdoc(thing) or "").strip()
        lines += [f"kit.{name}{signature}", *(f"    {line}".rstrip() for line in about.splitlines()), ""]
    return "\n".join(lines)
