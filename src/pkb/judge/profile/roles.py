"""What a record on the device was for, by its name and by what the candidate's text says about the kernel of that name.

A name is a weak witness, so a rule that cannot tell says `compute`, and the profile then says why it gives no overlap.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from pkb.candidates.names import is_code
from pkb.candidates.paths import PathUse, kernel_paths
from pkb.candidates.source import Source
from pkb.types.profile import Role
from pkb.types.protocol.limits import is_library

BY_SMS = frozenset({"sm_load_store", "tma", "nvls"})
# torch's own kernels on symmetric memory: reductions count as library code, barriers and signals as communication without data.
_TORCH_REDUCTION = re.compile(r"(?:one_shot|two_shot|multimem)_(?:all_reduce|one_shot_all_reduce|all_gather|reduce)\w*")
_TORCH_SIGNAL = frozenset({"barrier_kernel", "put_signal_kernel", "wait_signal_kernel"})
_FOREIGN = re.compile(r"^(?:void )?(?:at|c10|c10d|cub|thrust|cutlass|cublas\w*|cudnn|nvjet\w*|sm\d+_xmma)(?:::|_|$)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# Arithmetic that no transfer needs: matrix products and transcendental functions. Sums belong to a reduction.
_COMPUTES = re.compile(
    r"\b(?:wg)?mma(?:\.|_sync|_async)|\bwgmma\w*|\bwmma\b|\btcgen05\b|\btl\.(?:dot|exp2?|log2?|sigmoid|softmax|rsqrt)\b"
    r"|\b(?:__)?(?:expf?|exp2f?|rsqrtf?|tanhf?|erff?|logf?)\s*\("
)


class KernelRole(NamedTuple):
    """What one name stands for."""

    role: Role
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expected:
    """What the candidate's text says about its kernels; empty for the reference, which uses the library."""

    kernels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The ways of moving data that the kernel of this name has in it."""
    computing: frozenset[str] = frozenset()
    """Those of them whose code computes as well."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The first line that shows a way."""
    paths: frozenset[str] = frozenset()
    """All ways that the text seems to use, in a kernel or not; with `unknown` where its CUDA was not read."""

    @property
    def on_sms(self) -> frozenset[str]:
        return self.paths & BY_SMS


def expected_of(source: Source, uses: tuple[PathUse, ...]) -> Expected:
    kernels = dict(kernel_paths(source))
    lines: dict[str, int] = {}
    for use in uses:
        lines.setdefault(use.path, use.line)
    return Expected(kernels, _computing(source, kernels), lines, frozenset(lines) - {"none"})


def _computing(source: Source, kernels: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """A kernel whose compile unit (CUDA) or function (Triton) computes. Helpers of a CUDA kernel are in its unit, so the
    unit is read: a mere transfer beside a computing kernel is then called fused, which costs a number and makes none up."""
    found = set()
    for literal in source.names.literals:
        if is_code(literal.text) and _COMPUTES.search(literal.code):
            found |= {name for name in kernels if _stem(name) and _stem(name) in literal.code}
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef) and node.name in kernels:
            text = "\n".join(source.lines[node.lineno - 1 : node.end_lineno])
            if _COMPUTES.search(text):
                found.add(node.name)
    return frozenset(found)


def role_of(name: str, kind: str, expected: Expected) -> KernelRole:
    if kind == "memcpy":
        if is_peer_copy(name):
            return KernelRole(Role.COMMUNICATION, ("copy_engine",))
        # Where ranks share a GPU a peer's memory is the device's own, and the record is that of a local copy.
        guessed = "DtoD" in name and "copy_engine" in expected.paths
        return KernelRole(Role.COMMUNICATION, ("copy_engine",)) if guessed else KernelRole(Role.COMPUTE)
    if kind != "kernel":
        return KernelRole(Role.COMPUTE)
    own = match_kernel(name, expected.kernels)
    if own is not None:
        ways = tuple(path for path in expected.kernels[own] if path != "none")
        if not ways:
            return KernelRole(Role.COMPUTE)
        return KernelRole(Role.FUSED if own in expected.computing else Role.COMMUNICATION, ways)
    base = base_name(name)
    if is_library(name) or _TORCH_REDUCTION.match(base):
        return KernelRole(Role.COMMUNICATION, ("library",))
    return KernelRole(Role.COMMUNICATION) if base in _TORCH_SIGNAL else KernelRole(Role.COMPUTE)


def is_peer_copy(name: str) -> bool:
    return name.startswith("Memcpy PtoP")


def is_barrier(name: str) -> bool:
    return base_name(name) == "barrier_kernel"


@lru_cache(maxsize=4096)
def base_name(name: str) -> str:
    """`spin_kernel` of `at::cuda::(anonymous namespace)::spin_kernel(long)`: without types, templates and namespaces."""
    head = name.replace("(anonymous namespace)", "_anonymous_")
    head = re.split(r"[<(]", head, maxsplit=1)[0]
    found = _IDENTIFIER.findall(head)
    return found[-1] if found else name


def match_kernel(name: str, kernels: Mapping[str, tuple[str, ...]]) -> str | None:
    """The kernel of the text that a name on the device means: the same name; else the longest that is part of it, since names
    can be mangled, made by a macro (`sum_##T`) or given a suffix by a compiler. Libraries' kernels mean none of them."""
    base = base_name(name)
    if base in kernels:
        return base
    if _FOREIGN.match(name) or is_library(name):
        return None
    parts = [kernel for kernel in kernels if len(_stem(kernel)) >= 4 and _stem(kernel) in base]
    return max(parts, key=lambda kernel: (len(_stem(kernel)), kernel), default=None)


def _stem(kernel: str) -> str:
    """The part of a name that a macro leaves as it is."""
    found = _IDENTIFIER.match(kernel)
    return found[0] if found else ""
