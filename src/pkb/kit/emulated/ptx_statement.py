"""One statement of PTX: its qualifiers, and its operands as C++."""

import re
from collections.abc import Sequence

TYPES = {
    "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t",
    "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
    "f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t", "f16x2": "uint32_t", "bf16x2": "uint32_t",
    "tf32": "uint32_t", "pred": "bool",
}  # fmt: skip
SPECIAL = {
    "globaltimer": "emu_now_ns()", "clock64": "(uint64_t)clock64()", "clock": "(uint32_t)clock64()",
    "laneid": "emu_lane()", "warpid": "(emu_linear_thread() / 32)", "smid": "0u", "nsmid": "132u",
    **{f"tid.{x}": f"threadIdx.{x}" for x in "xyz"}, **{f"ctaid.{x}": f"blockIdx.{x}" for x in "xyz"},
    **{f"ntid.{x}": f"blockDim.{x}" for x in "xyz"}, **{f"nctaid.{x}": f"gridDim.{x}" for x in "xyz"},
    **{f"cluster_ctaid.{x}": f"(blockIdx.{x} % emu_cluster_dim.{x})" for x in "xyz"},
    **{f"cluster_nctaid.{x}": f"emu_cluster_dim.{x}" for x in "xyz"},
    **{f"clusterid.{x}": f"(blockIdx.{x} / emu_cluster_dim.{x})" for x in "xyz"},
    **{f"nclusterid.{x}": f"(gridDim.{x} / emu_cluster_dim.{x})" for x in "xyz"},
    "cluster_ctarank": "emu::cluster_rank()", "cluster_nctarank": "emu::cluster_size()",
    "lanemask_lt": "((1u << emu_lane()) - 1)", "lanemask_eq": "(1u << emu_lane())",
    "lanemask_le": "(~0u >> (31 - emu_lane()))", "lanemask_gt": "(~0u << emu_lane() << 1)",
    "lanemask_ge": "(~0u << emu_lane())",
}  # fmt: skip
HALVES = {"bf16x2": "emu::ptx::Bf16", "f16x2": "emu::ptx::F16"}
HALF = {"bf16": "emu::ptx::Bf16", "f16": "emu::ptx::F16"}
EIGHT = {"e4m3": "emu::ptx::E4m3", "e5m2": "emu::ptx::E5m2"}


class Unknown(Exception):
    """An instruction, or a form of one, that has no translation."""


class Statement:
    """One instruction: `op.q.q d, [a], b`. Its guard, if it has one, is its caller's."""

    def __init__(self, text: str, operands: Sequence[str]) -> None:
        self._operands = operands
        self.full, _, self.rest = text.partition(" ")
        self.name, *self.qualifiers = self.full.split(".")

    def value(self, operand: str) -> str:
        operand = operand.strip()
        if found := re.fullmatch(r"%(\d+)", operand):
            return self._operands[int(found[1])]
        if operand.startswith("%%"):
            return SPECIAL[operand[2:]]
        if operand.startswith("%") and operand[1:] in SPECIAL:
            return SPECIAL[operand[1:]]
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            return f"__uint_as_float(0x{found[1]}u)"
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)[uU]?", operand):
            return operand
        if re.fullmatch(r"[%$A-Za-z_][\w$]*", operand):
            return register_name(operand)
        raise Unknown(operand)

    def get(self, operand: str, kind: str) -> str:
        return f"emu::ptx::get<{kind}>({self.value(operand)})"

    def vector(self, operand: str) -> list[str]:
        return [part.strip() for part in operand.strip("{} ").split(",")] if operand.startswith("{") else [operand]

    def address(self, operand: str) -> str:
        inner, _, offset = operand.strip("[] ").partition("+")
        space = "shared" if any(q.startswith("shared") for q in self.qualifiers) else "generic"
        shift = f", {self.value(offset)}" if offset else ""
        return f"emu::ptx::{space}({self.value(inner)}{shift})"

    @property
    def type(self) -> str:
        """The last qualifier that is a type."""
        return next(q for q in reversed(self.qualifiers) if q in TYPES)

    def has(self, *names: str) -> bool:
        return any(name in self.qualifiers for name in names)


def register_name(text: str) -> str:
    return "emu_r_" + re.sub(r"\W", "_", text)


_MEMORY = {
    "weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "cta", "cluster", "gpu", "sys", "global", "shared",
    "shared::cta", "shared::cluster", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "v2", "v4", "v8", "noftz",
}  # fmt: skip
_HINTS = ("L1::", "L2::", "level::")


def known(s: Statement, *others: str) -> None:
    """No qualifier that would make another instruction of it (st.async, ld.param)."""
    for qualifier in s.qualifiers:
        if not (qualifier in _MEMORY or qualifier in TYPES or qualifier in others or qualifier.startswith(_HINTS)):
            raise Unknown(qualifier)
