"""Uses in a candidate's Python: torch's collectives and symmetric memory, torch operations on peers' tensors, and Triton."""

import ast
import re
from collections.abc import Iterator

from pkb.candidates.names import fold, under
from pkb.candidates.paths.expressions import GETTERS, TABLES, VIEWS
from pkb.candidates.paths.held import Kernel
from pkb.candidates.paths.live import Scope
from pkb.candidates.paths.ptx import instructions, meanings
from pkb.candidates.paths.use import Found, PathName
from pkb.candidates.paths.values import Values

_COLLECTIVES = re.compile(
    r"torch\.distributed\.(?:distributed_c10d\.)?(?:all_reduce|all_gather|all_to_all|reduce_scatter|broadcast|reduce|gather"
    r"|scatter|send|recv|isend|irecv|batch_isend_irecv|barrier|monitored_barrier|_all_gather_base|_reduce_scatter_base"
    r"|all_reduce_coalesced|all_gather_coalesced)(?:_into_tensor|_tensor|_single|_object|_object_list|_coalesced)*"
)
_LIBRARIES = (
    "torch.distributed.nn", "torch.distributed._functional_collectives", "torch.ops.c10d", "torch.ops.c10d_functional",
    "torch.ops._c10d_functional", "torch.ops.symm_mem", "torch.cuda.nccl", "cupy.cuda.nccl",
    "torch.distributed._symmetric_memory._nvshmem_triton", "torch.nn.parallel.DistributedDataParallel",
)  # fmt: skip
_PACKAGES = ("nccl", "nvshmem", "mpi4py")
"""Whole packages: only calls count, and not those that set up."""
_SETUP = re.compile(
    r".*(?:init|finalize|get_\w+|my_pe|n_pes|unique_?id|Communicator|COMM_WORLD|Get_rank|Get_size|free|malloc)", re.I
)
_GROUP_METHODS = frozenset(
    {"allreduce", "allgather", "_allgather_base", "alltoall", "alltoall_base", "reduce_scatter_tensor_coalesced"}
    | {"_reduce_scatter_base", "allreduce_coalesced"}
)
_MEMCPY = re.compile(r"(?:cuda|cupy)\.\w[\w.]*\.(?:cudaMemcpy\w*|cuMemcpy\w*|memcpy\w*)")
_HOST_COPY = re.compile(r"HostTo|ToHost|HtoD|DtoH")
_FACTS = frozenset(
    {
        "size",
        "dim",
        "numel",
        "stride",
        "element_size",
        "storage_offset",
        "is_contiguous",
        "append",
        "extend",
        "data_ptr",
    }
    | {"get_device", "untyped_storage", "is_floating_point"}
)
_KIT_POINTERS = ("pkb.kit.buffers", "pkb.kit.barrier_pads", "pkb.kit.pads", "pkb.kit.pipeline", "pkb.kit.exchange")
_SIGNALS = frozenset({"put_signal", "wait_signal"})
_ASKS = (
    "builtins.bool",
    "builtins.print",
    "builtins.hex",
    "builtins.str",
    "builtins.repr",
    "builtins.isinstance",
    "builtins.hasattr",
)
_TL = "triton.language."
_DESCRIPTORS = ("triton.tools.tensor_descriptor.TensorDescriptor", "triton.language.make_tensor_descriptor",
                "triton.language._experimental_make_tensor_descriptor")  # fmt: skip


def python_uses(values: Values, scope: Scope) -> Iterator[Found]:
    """Everything that the code of one scope uses, Triton kernels included."""
    visible = _Reader(values, scope)
    for node in scope.nodes:
        for path, weak in visible.paths(node):
            line = getattr(node, "lineno", 0)
            yield Found(path, line, values.source.line_text(line), weak)


class _Reader:
    def __init__(self, values: Values, scope: Scope) -> None:
        self._values = values
        self._scope = scope
        self._names = values.source.names
        self._in_tests = {
            id(part)
            for node in scope.nodes
            if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)
            for part in _conditions(node.test)
        }
        self._inner = {id(node.value) for node in scope.nodes if isinstance(node, ast.Attribute)}
        self._handles = any(
            name.startswith("torch.distributed._symmetric_memory") for name, _ in self._names.imports
        ) or any("symmetric_memory" in name or "symm_mem" in name for name, _ in self._names.imports)

    def paths(self, node: ast.AST) -> Iterator[tuple[PathName, bool]]:
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in self._inner:
            yield from self._of_name(node)
        if isinstance(node, ast.Attribute):
            yield from self._of_attribute(node)
        elif isinstance(node, ast.Call):
            yield from ((path, False) for path in self._of_call(node))
            yield from self._weak_arguments(node)
        elif isinstance(node, ast.Assign):
            into = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
            copies = any(self._is_peer(target) for target in into) or (
                into and self._peer(node.value) and not self._fills(node)
            )
            if copies and not self._in_triton():  # a number is filled in by a kernel
                yield ("sm_load_store" if isinstance(node.value, ast.Constant) else "copy_engine"), False
        elif isinstance(node, ast.BinOp | ast.AugAssign) and not self._in_triton():
            sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            if any(self._is_peer(side) for side in sides) and not isinstance(sides[0], ast.List):
                yield "sm_load_store", False

    def _peer(self, node: ast.expr) -> bool:
        return self._values.holds_peer(self._scope, node)

    def _is_peer(self, node: ast.expr) -> bool:
        return self._values.plain(self._scope, node) == "peer"

    def _in_triton(self) -> bool:
        return self._values.is_jit_function(self._scope.name)

    def _fills(self, node: ast.Assign) -> bool:
        return (
            isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr in GETTERS
        )

    def _of_name(self, node: ast.Name | ast.Attribute) -> Iterator[tuple[PathName, bool]]:
        name = self._names.dotted(node)
        if name is None or isinstance(node.ctx, ast.Store):
            return
        inside = any(
            under(name, library) and (name != library or library.endswith("Parallel")) for library in _LIBRARIES
        )
        if _COLLECTIVES.fullmatch(name) or inside or name.startswith("torch.distributed._symmetric_memory._fused_"):
            yield "library", False
        if name.startswith("torch.ops.symm_mem.multimem_"):
            yield "nvls", False
        if name == "triton.language.pointer_type" and not self._in_triton():
            yield "sm_load_store", True
        if name == "pkb.kit.multicast":
            yield "nvls", True
        if under(name, *_KIT_POINTERS):
            yield "sm_load_store", True

    def _of_attribute(self, node: ast.Attribute) -> Iterator[tuple[PathName, bool]]:
        if node.attr in TABLES and id(node) not in self._in_tests:
            yield "sm_load_store", True
        elif node.attr in _GROUP_METHODS and node.attr not in self._values.functions:
            yield "library", False

    def _weak_arguments(self, node: ast.Call) -> Iterator[tuple[PathName, bool]]:
        """The NVLS address is handed to somebody: to what end, only their code could tell."""
        if self._names.dotted(node.func) in _ASKS or id(node) in self._in_tests:
            return
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if self._values.plain(self._scope, argument) == "multicast":
                yield "nvls", True

    def _of_call(self, node: ast.Call) -> Iterator[PathName]:
        name = self._names.dotted(node.func)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name is not None and under(name, *_PACKAGES) and not _SETUP.fullmatch(name):
            yield "library"
        if name is not None and _MEMCPY.fullmatch(name) and self._copies_peers(name, arguments):
            yield "copy_engine"
        if self._in_triton():
            yield from self._of_triton_call(node, name, arguments)
            return
        if name is not None and under(name, *_DESCRIPTORS):
            if any(self._is_peer(argument) for argument in node.args[:1]):
                yield "tma"
            return
        if isinstance(node.func, ast.Attribute):
            yield from self._of_signal(node, node.func, name)
        path = self._on_peers(node, name, arguments)
        if path is not None:
            yield path

    def _copies_peers(self, name: str, arguments: list[ast.expr]) -> bool:
        """`cudart.cudaMemcpyAsync(...)` from Python, with an address of a peer and not from or to the host."""
        kinds = [each.attr for each in arguments if isinstance(each, ast.Attribute)]
        if any(_HOST_COPY.search(kind) for kind in (name, *kinds)):
            return False
        return "eer" in name or any(self._values.plain(self._scope, each) in ("address", "peer") for each in arguments)

    def _of_signal(self, node: ast.Call, function: ast.Attribute, name: str | None) -> Iterator[PathName]:
        """torch's signals and barriers of a symmetric-memory handle are stores and loads of a small kernel."""
        own = function.attr in self._values.functions
        barrier = function.attr == "barrier" and self._handles and name is None
        if (function.attr in _SIGNALS or barrier) and not own:
            yield "sm_load_store"

    def _on_peers(self, node: ast.Call, name: str | None, arguments: list[ast.expr]) -> PathName | None:
        """torch copies with the copy engine; its other operations, like a kernel that is handed a peer's tensor, load and
        store with the SMs."""
        touched = any(self._peer(argument) for argument in arguments)
        if isinstance(
            node.func, ast.Subscript
        ):  # kernel[grid](peer, ...): the candidate's own kernels are read themselves
            launched = node.func.value
            own = isinstance(launched, ast.Name) and self._values.is_jit_function(launched.id)
            known = own or isinstance(self._values.of(self._scope, launched), Kernel)
            return "sm_load_store" if touched and not known else None
        if not isinstance(node.func, ast.Attribute):
            return None
        method, of_peer = node.func.attr, self._peer(node.func.value)
        if method in self._values.functions:
            return None
        if method in ("copy_", "clone", "cpu", "tolist", "item") and (of_peer or (touched and method == "copy_")):
            return "copy_engine"
        if of_peer:
            return None if method in VIEWS | _FACTS | GETTERS else "sm_load_store"
        if not touched or method in _FACTS:
            return None
        in_place = name is None and method.endswith("_")
        of_torch = name is not None and name.startswith("torch.") and not _COLLECTIVES.fullmatch(name)
        return "sm_load_store" if in_place or (of_torch and "_symmetric_memory" not in (name or "")) else None

    def _of_triton_call(self, node: ast.Call, name: str | None, arguments: list[ast.expr]) -> Iterator[PathName]:
        first = node.args[0] if node.args else None
        at = self._values.plain(self._scope, first)
        if name is None:
            return
        if name == f"{_TL}inline_asm_elementwise":
            yield from self._of_asm(node)
        elif name.startswith(f"{_TL}atomic_"):
            scope = next((fold(keyword.value) for keyword in node.keywords if keyword.arg == "scope"), None)
            if scope == "sys" or at == "peer":
                yield "sm_load_store"
        elif name in (f"{_TL}load", f"{_TL}store", f"{_TL}make_block_ptr"):
            if at == "peer":
                yield "sm_load_store"
        elif under(name, *_DESCRIPTORS):
            base = first if first is not None else next((k.value for k in node.keywords if k.arg == "base"), None)
            if self._values.plain(self._scope, base) == "peer":
                yield "tma"
        elif "libshmem_device." in name or under(name, "triton_dist.language") or "_nvshmem_triton." in name:
            yield "library"

    def _of_asm(self, node: ast.Call) -> Iterator[PathName]:
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        written = named.get("asm", node.args[0] if node.args else None)
        text = self._values.constants.get(written.id) if isinstance(written, ast.Name) else fold(written)
        handed = named.get("args", node.args[2] if len(node.args) > 2 else None)
        elements = handed.elts if isinstance(handed, ast.List | ast.Tuple) else []
        peer = any(self._is_peer(each) for each in elements)
        multicast = any(self._values.plain(self._scope, each) == "multicast" for each in elements)
        for each in instructions(text or ""):
            found = meanings(each, lambda _: "multicast" if multicast else "peer" if peer else None, resolved=True)
            yield from (path for path, weak in found if not weak)


def _conditions(node: ast.expr) -> Iterator[ast.AST]:
    """The parts of a condition that are only tested: not what a call in it is handed."""
    waiting: list[ast.AST] = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Call):
            waiting += ast.iter_child_nodes(each)


def has_peer_source(values: Values) -> bool:
    """Does the Python get at other ranks' memory at all?"""
    for scope in values.scopes:
        for node in scope.nodes:
            if isinstance(node, ast.Attribute) and node.attr in TABLES | GETTERS | {"multicast_ptr", "rendezvous"}:
                return True
            if isinstance(node, ast.Name | ast.Attribute):
                name = values.source.names.dotted(node)
                if name is not None and (under(name, "pkb.kit") or "symmetric_memory" in name or "rendezvous" in name):
                    return True
    return False
