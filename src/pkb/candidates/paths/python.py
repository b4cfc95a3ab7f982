"""Uses in a candidate's Python: torch's collectives and symmetric memory, torch operations on peers' tensors, and Triton."""

import ast
import re
from collections.abc import Iterator

from pkb.candidates.constants import fold
from pkb.candidates.names import under
from pkb.candidates.paths.known import Meaning, PathName, PathUse, instructions, meanings
from pkb.candidates.paths.values import GETTERS, KERNEL, TABLES, VIEWS, Values
from pkb.candidates.scopes import PythonScope
from pkb.types.protocol.limits import is_host_collective

_COLLECTIVES = re.compile(
    r"torch\.distributed\.(?:distributed_c10d\.)?(?:all_reduce|all_gather|all_to_all|reduce_scatter|broadcast|reduce|gather"
    r"|scatter|send|recv|isend|irecv|batch_isend_irecv|barrier|monitored_barrier|_all_gather_base|_reduce_scatter_base"
    r"|all_reduce_coalesced|all_gather_coalesced)(?:_into_tensor|_tensor|_single|_object|_object_list|_coalesced)*"
    r"|torch\.distributed\._symmetric_memory\._fused_.*|torch\.nn\.parallel\.DistributedDataParallel"
    r"|(?:torch\.distributed\.nn|torch\.distributed\._functional_collectives|torch\.ops\.(?:c10d|c10d_functional"
    r"|_c10d_functional|symm_mem)|torch\.cuda\.nccl|cupy\.cuda\.nccl"
    r")\..+|torch\.distributed\._symmetric_memory\._nvshmem_triton\.(?:broadcast|alltoall|reduce)"
)
_PACKAGES = ("nccl", "nvshmem", "mpi4py")  # whole packages: only calls count, and not those that set up
_SETUP = re.compile(
    r".*(?:init|finalize|get_\w+|my_pe|n_pes|unique_?id|Communicator|COMM_WORLD|Get_rank|Get_size|free|malloc)", re.I
)
_GROUP_METHODS = frozenset(
    {"allreduce", "allgather", "_allgather_base", "alltoall", "alltoall_base", "reduce_scatter_tensor_coalesced"}
    | {"_reduce_scatter_base", "allreduce_coalesced"}
)
_FACTS = frozenset(
    {"size", "dim", "numel", "stride", "element_size", "storage_offset", "is_contiguous", "append", "extend"}
    | {"data_ptr", "get_device", "untyped_storage", "is_floating_point"}
)
_KIT_POINTERS = (
    "pkb.kit.buffers",
    "pkb.kit.barrier_pads",
    "pkb.kit.pads",
    "pkb.kit.pipeline",
    "pkb.kit.exchange",
    "pkb.kit.nccl_device.window",
)
_ASKS = frozenset(f"builtins.{name}" for name in ("bool", "print", "hex", "str", "repr", "isinstance", "hasattr"))
_DESCRIPTORS = ("triton.tools.tensor_descriptor.TensorDescriptor", "triton.language.make_tensor_descriptor",
                "triton.language._experimental_make_tensor_descriptor")  # fmt: skip


def python_uses(values: Values, scope: PythonScope) -> Iterator[PathUse]:
    """Everything that the code of one scope uses, Triton kernels included."""
    reader = _ScopeReader(values, scope)
    for node in scope.nodes:
        for path, weak in reader.paths(node):
            line = getattr(node, "lineno", 0)
            yield PathUse(path, line, values.source.line_text(line), weak)


class _ScopeReader:
    def __init__(self, values: Values, scope: PythonScope) -> None:
        self._values = values
        self._scope = scope
        self._names = values.source.names
        self._in_triton = scope.name in values.jits
        tests = [node.test for node in scope.nodes if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)]
        self._tests = {id(part) for test in tests for part in ast.walk(test)}
        self._inner = {id(node.value) for node in scope.nodes if isinstance(node, ast.Attribute)}
        self._has_handles = any(re.search("symmetric_memory|symm_mem", name) for name, _ in self._names.imports)

    def paths(self, node: ast.AST) -> Iterator[Meaning]:
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in self._inner:
            yield from self._of_name(node)
        match node:
            case ast.Attribute(attr=attr) if attr in TABLES and id(node) not in self._tests:
                yield Meaning("sm_load_store", True)
            case ast.Attribute(attr=attr) if attr in _GROUP_METHODS and attr not in self._values.functions:
                yield Meaning("library", False)
            case ast.Attribute(attr=attr) if is_host_collective(attr):  # of a library that ctypes or cffi has loaded
                yield Meaning("library", False)
            case ast.Call():
                yield from (Meaning(path, False) for path in self._of_call(node))
                yield from self._weak_arguments(node)
            case ast.Assign(targets=targets, value=value) if not self._in_triton:
                into = [target.value for target in targets if isinstance(target, ast.Subscript)]
                fills = isinstance(value, ast.Call) and getattr(value.func, "attr", "") in GETTERS
                if any(map(self._is_peer, into)) or (into and self._holds_peer(value) and not fills):
                    number = isinstance(value, ast.Constant)  # filled in by a kernel
                    yield Meaning("sm_load_store" if number else "copy_engine", False)
            case ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right) if not self._in_triton:
                if (self._is_peer(left) or self._is_peer(right)) and not isinstance(left, ast.List):
                    yield Meaning("sm_load_store", False)

    def _is(self, node: ast.expr | None, *kinds: str) -> bool:
        return self._values.of(self._scope, node) in kinds

    def _is_peer(self, node: ast.expr | None) -> bool:
        return self._is(node, "peer")

    def _holds_peer(self, node: ast.expr) -> bool:
        return self._is(node, "peer", "peers")

    def _of_name(self, node: ast.Name | ast.Attribute) -> Iterator[Meaning]:
        name = self._names.dotted(node)
        if name is None or isinstance(node.ctx, ast.Store):
            return
        if _COLLECTIVES.fullmatch(name):
            yield Meaning("library", False)
        if name.startswith("torch.ops.symm_mem.multimem_"):
            yield Meaning("nvls", False)
        if name == "pkb.kit.multicast":
            yield Meaning("nvls", True)
        if under(name, *_KIT_POINTERS) or (name == "triton.language.pointer_type" and not self._in_triton):
            yield Meaning("sm_load_store", True)

    def _weak_arguments(self, node: ast.Call) -> Iterator[Meaning]:
        """The NVLS address is handed to somebody: to what end, only their code could tell."""
        if self._names.dotted(node.func) not in _ASKS and id(node) not in self._tests:
            handed = (*node.args, *(keyword.value for keyword in node.keywords))
            yield from (Meaning("nvls", True) for argument in handed if self._is(argument, "multicast"))

    def _of_call(self, node: ast.Call) -> Iterator[PathName]:
        name = self._names.dotted(node.func) or ""
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if under(name, *_PACKAGES) and not _SETUP.fullmatch(name):
            yield "library"
        if self._in_triton:
            yield from self._of_triton_call(node, name)
        elif under(name, *_DESCRIPTORS):
            if any(map(self._is_peer, node.args[:1])):
                yield "tma"
        else:
            yield from filter(None, [self._on_peers(node, name, arguments)])

    def _on_peers(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> PathName | None:
        """torch copies with the copy engine; its other operations, its signals and barriers, and a kernel that is handed
        a peer's tensor, load and store with the SMs."""
        touched = any(map(self._holds_peer, arguments))
        if isinstance(node.func, ast.Subscript):  # kernel[grid](peer, ...): the candidate's own are read themselves
            launched = node.func.value
            own = isinstance(launched, ast.Name) and launched.id in self._values.jits
            known = own or str(self._values.of(self._scope, launched)).startswith(KERNEL)
            return "sm_load_store" if touched and not known else None
        method = getattr(node.func, "attr", "")
        if not isinstance(node.func, ast.Attribute) or method in self._values.functions:
            return None
        if method in ("put_signal", "wait_signal") or (method == "barrier" and self._has_handles and not name):
            return "sm_load_store"
        of_peer = self._holds_peer(node.func.value)
        if method in ("copy_", "clone", "cpu", "tolist", "item") and (of_peer or (touched and method == "copy_")):
            return "copy_engine"
        if of_peer:
            return None if method in VIEWS | _FACTS | GETTERS else "sm_load_store"
        of_torch = name.startswith("torch.") and "_symmetric_memory" not in name and not _COLLECTIVES.fullmatch(name)
        in_place = not name and method.endswith("_")
        return "sm_load_store" if touched and method not in _FACTS and (in_place or of_torch) else None

    def _of_triton_call(self, node: ast.Call, name: str) -> Iterator[PathName]:
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        first = node.args[0] if node.args else named.get("base")
        function = name.removeprefix("triton.language.")
        if function == "inline_asm_elementwise":
            yield from self._of_asm(node, named)
        elif function.startswith(("atomic_", "load", "store", "make_block_ptr")):
            if self._is_peer(first) or (function.startswith("atomic_") and fold(named.get("scope")) == "sys"):
                yield "sm_load_store"
        elif under(name, *_DESCRIPTORS) and self._is_peer(first):
            yield "tma"
        elif "libshmem_device." in name or under(name, "triton_dist.language"):
            yield "library"
        elif "_nvshmem_triton." in name and not _COLLECTIVES.fullmatch(name) and not name.endswith(("my_pe", "n_pes")):
            yield "sm_load_store"

    def _of_asm(self, node: ast.Call, named: dict[str | None, ast.expr]) -> Iterator[PathName]:
        text = self._values.text(self._scope, named.get("asm", node.args[0] if node.args else None))
        handed = named.get("args", node.args[2] if len(node.args) > 2 else None)
        elements = handed.elts if isinstance(handed, ast.List | ast.Tuple) else []
        multicast = any(self._is(each, "multicast") for each in elements)
        peer = any(map(self._is_peer, elements))
        for each in instructions(text or ""):
            found = meanings(each, lambda _: "multicast" if multicast else "peer" if peer else None, resolved=True)
            yield from (path for path, weak in found if not weak)
