"""Which instructions an assembler text holds, and what each says about communication."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from pkb.candidates.paths.use import Kind, Meaning

# Bounded, and one instruction is read once: the text comes from a candidate.
_OPERATION = re.compile(r"(?<![\w.$%])(?:multimem|cp|ld|st|atom|red|fence|membar|tensormap)\.[\w.:]{1,120}")
_ADDRESS = re.compile(r"\[\s{0,4}(?:[%$](\d{1,2})|%\[(\w{1,40})\]|(%?\w{1,40}))")
_MAX_OPERANDS = 200
_MAX_INSTRUCTIONS = 10_000
_NOT_GLOBAL = ("shared", "local", "param", "const")


class Instruction(NamedTuple):
    name: str
    addresses: tuple[str, ...]
    """Operand numbers or names inside brackets: `0` of `[%0+16]`, `dst` of `[%[dst]]`."""
    at: int


def instructions(text: str) -> Iterator[Instruction]:
    for match in islice(_OPERATION.finditer(text), _MAX_INSTRUCTIONS):
        end = text.find(";", match.end(), match.end() + _MAX_OPERANDS)
        operands = text[match.end() : end if end >= 0 else match.end() + _MAX_OPERANDS]
        if end < 0 and (not operands.lstrip().startswith(("[", "%", "{", "$")) or ")" in operands):
            continue  # a sentence that names an instruction
        addresses = tuple(next(group for group in found if group) for found in _ADDRESS.findall(operands))
        yield Instruction(match.group().rstrip(".:"), addresses, match.start())


def meanings(instruction: Instruction, kind_of: Callable[[str], Kind | None], *, resolved: bool) -> list[Meaning]:
    """What one instruction moves. `kind_of` tells what an address operand points to; `resolved`: every pointer that could
    be a peer's is known, so an unknown one is this rank's own."""
    parts = instruction.name.split(".")
    kinds = {kind_of(address) for address in instruction.addresses}
    if parts[0] in ("multimem", "cp") and not instruction.addresses:
        return []  # a wait, or a name in a sentence
    if parts[0] == "multimem":
        moves = [Meaning("nvls", False)] if parts[1] in ("ld_reduce", "st", "red", "cp") else []
        return moves + ([Meaning("tma", False)] if "bulk" in parts else [])
    if parts[0] == "cp":
        return _copy(parts, kinds, resolved=resolved)
    if parts[0] in ("fence", "membar"):
        return [Meaning("sm_load_store", True)] if "sys" in parts else []
    if parts[0] == "tensormap" or not instruction.addresses or any(part.startswith(_NOT_GLOBAL) for part in parts):
        return []
    shared_with_others = "sys" in parts or "mmio" in parts
    return [Meaning("sm_load_store", False)] if shared_with_others or "peer" in kinds else []


def _copy(parts: list[str], kinds: set[Kind | None], *, resolved: bool) -> list[Meaning]:
    if "bulk" not in parts:  # cp.async of sm_80: the SM's own load, straight into shared memory
        return [Meaning("sm_load_store", False)] if "peer" in kinds else []
    waits = {"commit_group", "wait_group", "prefetch"} & set(parts)
    if waits or not any(part == "global" or part == "tensor" for part in parts):
        return []  # waits move nothing; without `global` it goes between the shared memories of a cluster
    if "multicast" in kinds:
        return [Meaning("tma", False), Meaning("nvls", False)]
    if "peer" in kinds or "table" in kinds:
        return [Meaning("tma", False)]
    return [] if resolved else [Meaning("tma", True)]
