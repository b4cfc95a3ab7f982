"""Whether the functions that tell the recorder what Python does are still those of their files.

A candidate's Python runs in the same process and could replace them. It could replace this too, so a verdict says that recorded
calls are its own processes' account; but what is replaced carelessly is noticed here.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

EMULATE = Path(__file__).parents[1]
FILES = (EMULATE / "recorder.py", *sorted(Path(__file__).parent.glob("*.py")))


def replaced() -> str:
    """The first function that is another one than its file says; empty if there is none."""
    for path in FILES:
        inside = path.relative_to(EMULATE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        name = f"pkb.rank.emulate.{inside}"
        if name in sys.modules:
            for code in _functions(compile(path.read_bytes(), str(path), "exec")):
                if _code_of(sys.modules[name], code.co_qualname) != code:
                    return f"{inside}.{code.co_qualname}"
    library = sys.modules["pkb.rank.emulate.recorder"]._library()
    own = {key: value for key, value in vars(library).items() if key.startswith("emu_")}
    return next((key for key, value in own.items() if type(value) is not library._FuncPtr), "")


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Of a module: its functions and those of its classes, but none that are made inside of a function."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and "<" not in inner.co_qualname:
            if inner.co_flags & inspect.CO_OPTIMIZED:
                yield inner
            else:
                yield from _functions(inner)


def _code_of(module: ModuleType, qualname: str) -> CodeType | None:
    found: object = module
    for part in qualname.split("."):
        found = inspect.getattr_static(found, part, None)
    found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
    return getattr(inspect.unwrap(found), "__code__", None) if callable(found) else None
