"""By which way a candidate seems to move data between ranks: a guess from its text, before it runs.

What it does is observed while it runs; this says in advance, and without a GPU, what to expect. Each guess carries its
evidence. Known limits: TMA counts wherever it occurs, also for a GPU's own memory; a peer's tensor is followed through
names, views and loops, but not into the parameters of another function; CUDA text is read by tokens, after comments.
"""

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pkb.candidates.names import is_code, under
from pkb.candidates.source import Source

PathName = Literal["copy_engine", "sm_load_store", "tma", "nvls", "library", "none"]


class PathUse(NamedTuple):
    path: PathName
    line: int
    """1-based; 0 for `none`."""
    text: str


# Repeats are bounded: a candidate must not be able to keep the judge busy with its text.
_IN_CODE: tuple[tuple[PathName, str], ...] = (
    ("nvls", r"multimem\.(?:ld_reduce|st|red)\b|\bMultimem\s*<|\bmultimem_add_release\b"),
    ("tma", r"\bcp\.(?:reduce\.)?async\.bulk\b|\bcp_async_bulk|\bCUtensorMap\b|\bSM90_TMA"),
    (
        "copy_engine",
        r"\bcudaMemcpy(?:2D|3D)?(?:Peer)?(?:Async)?\s{0,8}\((?![^;]{0,300}(?:HostTo|ToHost))"
        r"|\bcuMemcpy(?!HtoD|DtoH)\w{0,30}\s{0,8}\(",
    ),
    (
        "sm_load_store",
        r"(?<![\w.])(?:ld|st|atom|red)\.[\w.:]{0,60}\bsys\b|\b(?:ld_acquire|st_release|ld_relaxed|st_relaxed|cas_acquire"
        r"|cas_release|add_release)_sys\b|\bthread_scope_system\b|\batomic\w+_system\b|\b__threadfence_system\b"
        r"|\bbuffer_ptrs\w*|\bsignal_pad_ptrs\w*|\bpkb::(?:barrier|copy|put_signal|wait)\w*",
    ),
    ("library", r"\bnccl[A-Z]\w*\s*\(|\bnvshmem\w*\s*\("),
)
_CODE_PATTERNS = tuple((path, re.compile(pattern)) for path, pattern in _IN_CODE)

_COLLECTIVES = re.compile(
    r"torch\.distributed\.(?:distributed_c10d\.)?(?:all_reduce|all_gather|all_to_all|reduce_scatter|broadcast|reduce|gather"
    r"|scatter|send|recv|isend|irecv|batch_isend_irecv|barrier|monitored_barrier|_all_gather_base|_reduce_scatter_base"
    r"|all_reduce_coalesced|all_gather_coalesced)(?:_into_tensor|_tensor|_single|_object|_object_list|_coalesced)*"
)
_LIBRARIES = (
    "torch.distributed.nn", "torch.distributed._functional_collectives", "torch.ops.c10d", "torch.ops.c10d_functional",
    "torch.ops._c10d_functional", "torch.ops.symm_mem", "torch.cuda.nccl", "nccl", "cupy.cuda.nccl", "nvshmem",
    "mpi4py",
)  # fmt: skip
_GROUP_METHODS = frozenset(
    {"allreduce", "allgather", "_allgather_base", "alltoall", "alltoall_base", "reduce_scatter_tensor_coalesced"}
    | {"_reduce_scatter_base", "allreduce_coalesced"}
)
_POINTER_TABLES = frozenset({"buffer_ptrs", "buffer_ptrs_dev", "signal_pad_ptrs", "signal_pad_ptrs_dev"})
_KIT_POINTERS = ("pkb.kit.buffers", "pkb.kit.barrier_pads", "pkb.kit.pointer_table", "pkb.kit.pads")
_TRITON_TMA = ("triton.language.make_tensor_descriptor", "triton.language._experimental_descriptor_load")
_PEER_GETTERS = frozenset({"get_buffer", "get_remote_tensor", "get_remote_tensors", "get_remote_storage"})
_VIEWS = frozenset(
    {"view", "view_as", "reshape", "narrow", "flatten", "unflatten", "chunk", "split", "unbind", "transpose", "permute"}
    | {"t", "squeeze", "unsqueeze", "expand", "select", "as_strided", "contiguous", "detach"}
)
_FACTS = frozenset(
    {"size", "dim", "numel", "stride", "element_size", "storage_offset", "is_contiguous", "append", "extend"}
)
_MAX_PASSES = 8
"""Names are followed through at most this many steps: a chain of a hundred thousand would take hours."""


def static_paths(source: Source) -> list[PathUse]:
    """The ways it seems to use, each once per line, in the order of the file; a single `none` where there are none."""
    found: dict[tuple[PathName, int], PathUse] = {}
    for use in (*_in_embedded_code(source), *_in_python(source), *_on_peer_tensors(source)):
        found.setdefault((use.path, use.line), use)
    uses = sorted(found.values(), key=lambda use: (use.line, use.path))
    return uses or [PathUse("none", 0, "no communication was recognised in the text")]


def uses_multicast(uses: list[PathUse]) -> bool:
    return any(use.path == "nvls" for use in uses)


def _in_embedded_code(source: Source) -> Iterator[PathUse]:
    for literal in source.names.literals:
        for path, pattern in _CODE_PATTERNS if is_code(literal.text) else ():
            for match in pattern.finditer(literal.code):
                yield PathUse(path, literal.line_of(match.start()), literal.code_at(match.start()))


def _in_python(source: Source) -> Iterator[PathUse]:
    for name, expression, line in source.names.references:
        path = _path_of_name(name)
        if path is not None and not isinstance(getattr(expression, "ctx", None), ast.Store):
            yield _use(source, path, line)
        if name.startswith("torch.ops.symm_mem.multimem_"):
            yield _use(source, "nvls", line)
    for node in source.nodes:
        if not isinstance(node, ast.Attribute):
            continue
        if node.attr in _POINTER_TABLES:
            yield _use(source, "sm_load_store", node.lineno)
        elif node.attr == "multicast_ptr":
            yield _use(source, "nvls", node.lineno)
        elif node.attr in _GROUP_METHODS:
            yield _use(source, "library", node.lineno)


def _path_of_name(name: str) -> PathName | None:
    if _COLLECTIVES.fullmatch(name) or under(name, *_LIBRARIES):
        return "library"
    if name.startswith("torch.distributed._symmetric_memory._fused_"):
        return "library"
    if name == "pkb.kit.multicast":
        return "nvls"
    if name == "triton.language.pointer_type":  # an address passed as a number and turned into a pointer: a peer's
        return "sm_load_store"
    if under(name, *_KIT_POINTERS):
        return "sm_load_store"
    return "tma" if under(name, *_TRITON_TMA) else None


def _on_peer_tensors(source: Source) -> Iterator[PathUse]:
    """What is done with the tensors that `get_buffer` returns: torch copies them with the copy engine, and its other
    operations, like a Triton kernel that is handed one, load and store with the SMs."""
    peers = _Peers(source)
    for node in source.nodes:
        path: PathName | None = None
        if isinstance(node, ast.Call):
            path = _path_of_call(node, peers)
        elif isinstance(node, ast.Assign):
            into = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
            copies = into and (peers.holds(node.value) or any(peers.holds(target) for target in into))
            path = "copy_engine" if copies and not _fills_table(node, peers) else None
        elif isinstance(node, ast.BinOp) and (peers.holds(node.left) or peers.holds(node.right)):
            path = "sm_load_store" if not isinstance(node.left, ast.List) else None
        elif isinstance(node, ast.AugAssign) and (peers.holds(node.value) or peers.holds(node.target)):
            path = "sm_load_store"
        if path is not None:
            yield _use(source, path, getattr(node, "lineno", 0))


def _fills_table(node: ast.Assign, peers: "_Peers") -> bool:
    return isinstance(node.value, ast.Call) and peers.is_getter(node.value)


def _path_of_call(node: ast.Call, peers: "_Peers") -> PathName | None:
    touched = any(peers.holds(argument) for argument in (*node.args, *(keyword.value for keyword in node.keywords)))
    if isinstance(node.func, ast.Subscript):  # kernel[grid](peer, ...)
        return "sm_load_store" if touched else None
    if not isinstance(node.func, ast.Attribute):
        return None  # a function of the candidate's own: what it does with the tensor is not followed
    method, of_peer = node.func.attr, peers.holds(node.func.value)
    if method in ("copy_", "clone") and (of_peer or touched):
        return "copy_engine"
    if of_peer:
        return None if method in _VIEWS | _FACTS or method in _PEER_GETTERS else "sm_load_store"
    if not touched or method in _FACTS:
        return None
    name = peers.source.names.dotted(node.func)
    in_place = name is None and method.endswith("_")
    return "sm_load_store" if in_place or (name is not None and name.startswith("torch.")) else None


class _Peers:
    """Which names hold a peer's tensor, or a list of them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._names: set[str] = set()
        for _ in range(_MAX_PASSES):
            before = len(self._names)
            for node in source.nodes:
                self._follow(node)
            if len(self._names) == before:
                return

    def _follow(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and self.holds(node.value):
            for target in node.targets:
                # `table[r] = handle.get_buffer(...)` makes a table of peers; `out[r] = peer` copies into a tensor.
                self._add(target.value if isinstance(target, ast.Subscript) and _fills_table(node, self) else target)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and self.holds(node.value):
            self._add(node.target)
        elif isinstance(node, ast.For | ast.comprehension) and self._iterates(node.iter):
            target = node.target
            numbered = isinstance(node.iter, ast.Call) and isinstance(target, ast.Tuple)
            self._add(target.elts[-1] if numbered and isinstance(target, ast.Tuple) else target)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            self._add(node.func.value if node.args and self.holds(node.args[0]) else None)

    def _iterates(self, node: ast.expr) -> bool:
        wrapped = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "enumerate"
        return self.holds(node.args[0]) if wrapped and isinstance(node, ast.Call) and node.args else self.holds(node)

    def _add(self, target: ast.expr | None) -> None:
        if target is None or isinstance(target, ast.Subscript):
            return
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and node.id != "self":
                self._names.add(node.id)

    def is_getter(self, node: ast.Call) -> bool:
        """`handle.get_buffer(r, ...)`; with `handle.rank` it is the rank's own memory."""
        own = bool(node.args) and isinstance(node.args[0], ast.Attribute) and node.args[0].attr == "rank"
        return isinstance(node.func, ast.Attribute) and node.func.attr in _PEER_GETTERS and not own

    def holds(self, node: ast.expr | None) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Subscript | ast.Starred):
            return self.holds(node.value)
        if isinstance(node, ast.Attribute):
            return node.attr in ("T", "mT") and self.holds(node.value)
        if isinstance(node, ast.Call):
            view = isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and self.holds(node.func.value)
            return view or self.is_getter(node)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self.holds(node.elt)
        if isinstance(node, ast.List | ast.Tuple):
            return any(self.holds(item) for item in node.elts)
        if isinstance(node, ast.IfExp):
            return self.holds(node.body) or self.holds(node.orelse)
        return False


def _use(source: Source, path: PathName, line: int) -> PathUse:
    return PathUse(path, line, source.line_text(line))
