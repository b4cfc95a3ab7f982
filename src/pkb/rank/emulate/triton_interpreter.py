"""Makes Triton's interpreter compute with bfloat16 as a GPU does.

The interpreter keeps bfloat16 as its bits in 16-bit integers and does arithmetic on those, so a correct kernel that adds or
multiplies bfloat16 values is wrong on a CPU; and where it converts, it cuts bits off instead of rounding to nearest. Here
each such operation is done in float32 and its result rounded, which is what the hardware's bfloat16 operations give;
products accumulate in the type of the accumulator, as they should.

It also keeps scalars in arrays of one element. Triton before 3.7 makes the bound of a loop an `int` as numpy allowed until 2.5.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pkb.types.failure import Cause, NotOnThisPlatform

_ROUNDED = (
    "create_fadd", "create_fsub", "create_fmul", "create_fdiv", "create_frem", "create_fneg", "create_precise_divf",
    "create_approx_divf", "create_minimumf", "create_minnumf", "create_maximumf", "create_maxnumf", "create_clampf",
    "create_fma", "create_cos", "create_exp", "create_exp2", "create_floor", "create_ceil", "create_log", "create_log2",
    "create_precise_sqrt", "create_sqrt", "create_sin", "create_erf", "create_rsqrt",
)  # fmt: skip
_UNROUNDED = ("create_dot", "create_fp_to_si", "create_fp_to_ui")
_COMPARISONS = tuple(f"create_fcmp{kind}{word}" for kind in "OU" for word in ("LT", "GT", "LE", "GE", "EQ", "NE"))


def mend_bfloat16() -> None:
    """Wraps the interpreter's operations in place, and refuses inline assembly as a thing that this platform lacks; done once,
    before any candidate is loaded. A Triton whose interpreter lacks one of the names keeps its own behaviour there."""
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    language = importlib.import_module("triton.language")
    builder = interpreter.InterpreterBuilder
    if not hasattr(builder.cast_impl, "__wrapped__"):
        builder.cast_impl = _rounding(builder.cast_impl, interpreter.TensorHandle, language)
    for name in (*_ROUNDED, *_UNROUNDED, *_COMPARISONS):
        operation = getattr(builder, name, None)
        if operation is not None and not hasattr(operation, "__wrapped__"):
            rounded = name in _ROUNDED
            setattr(builder, name, _in_float32(operation, interpreter.TensorHandle, language, rounded=rounded))
    builder.create_inline_asm = _refuse_assembly
    patch = getattr(interpreter, "_patch_lang_tensor", None)
    if patch is not None and not hasattr(patch, "__wrapped__"):
        interpreter._patch_lang_tensor = _counting(patch)


def _refuse_assembly(*_arguments: Any) -> Any:
    message = "Triton's interpreter cannot run inline assembly"
    raise NotOnThisPlatform(Cause.LACKS_INLINE_ASSEMBLY, message)


def _counting(patch: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(patch)
    def mended(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)  # which remembers what was there before
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    return mended


def _rounding(cast: Callable[..., Any], handle: type, language: Any) -> Callable[..., Any]:
    @functools.wraps(cast)
    def mended(self: Any, source: Any, target: Any) -> Any:
        kinds = (source.dtype.scalar, target.scalar)
        if kinds == (language.float32, language.bfloat16):
            return handle(to_bfloat16(source.data), language.bfloat16)
        if kinds == (language.bfloat16, language.float32):
            return handle((source.data.astype(np.uint32) << 16).view(np.float32), language.float32)
        return cast(self, source, target)

    return mended


def to_bfloat16(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """The upper 16 bits, rounded to nearest, ties to even; a NaN stays one, whichever bits of it are lost."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _in_float32(operation: Callable[..., Any], handle: type, language: Any, *, rounded: bool) -> Callable[..., Any]:
    @functools.wraps(operation)
    def mended(self: Any, *arguments: Any, **options: Any) -> Any:
        narrow = [isinstance(a, handle) and a.dtype.scalar == language.bfloat16 for a in arguments]  # type: ignore[attr-defined]
        if not any(narrow):
            return operation(self, *arguments, **options)
        wide = [
            self.cast_impl(a, language.float32) if is_narrow else a
            for a, is_narrow in zip(arguments, narrow, strict=True)
        ]
        result = operation(self, *wide, **options)
        return self.cast_impl(result, language.bfloat16) if rounded else result

    return mended
