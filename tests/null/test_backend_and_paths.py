"""What a candidate is written in, and how its text seems to move data."""

import pytest
from candidate_text import source

from pkb.candidates.backend import backend, needs
from pkb.candidates.names import strip_comments
from pkb.candidates.paths import cuda, static_paths

GUARD = "import torch\nfast = torch.cuda.is_available()\n"


@pytest.mark.parametrize(
    ("text", "kind", "needed"),
    [
        ("from utils.cuda_helpers import compile_cuda_extension as c\nc('n', S)", "cuda", {"cuda"}),
        ("from pkb import kit\nkit.compile(S)", "cuda", {"cuda"}),
        ("import pkb.kit as k\nimport triton\nk.compile(S)", "cuda", {"cuda", "triton"}),
        ("from torch.utils.cpp_extension import load_inline\nload_inline('n', cuda_sources=S)", "cuda", {"cuda"}),
        ("from torch.utils.cpp_extension import load_inline\nload_inline('n', C, S)", "cuda", {"cuda"}),
        ("from torch.utils.cpp_extension import load_inline\nload_inline('n', cpp_sources=S)", "cpp", {"cpp"}),
        ("from torch.utils import cpp_extension as e\ne.load('n', sources=['a.cu'])", "cuda", {"cuda"}),
        ("from torch.utils import cpp_extension as e\ne.load('n', sources=['a.cpp'])", "cpp", {"cpp"}),
        ("import cupy as cp\ncp.RawKernel(S, 'f')", "cuda", {"cuda", "gpu"}),
        ("S = 'extern \"C\" __global__ void f() {}'", "cuda", {"cuda"}),
        ("S = '// __global__ is not used\\nint f();'", "torch", set()),
        ("'''__global__ is only talked about'''", "torch", set()),
        ("import triton\nimport triton.language as tl", "triton", {"triton"}),
        ("from triton import language as tl", "triton", {"triton"}),
        ("import triton.language as tl\ntl.inline_asm_elementwise('x')", "triton", {"triton", "cuda"}),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None", "triton", set()),
        ("from pkb.kit import build_cpp\nbuild_cpp(S)", "cpp", {"cpp"}),
        ("import cutlass.cute as cute\ncute.compile(f)", "cute", {"cuda", "gpu", "cute"}),
        (
            "from cutlass import cute\nfrom cuda.bindings.driver import CUstream\nCUstream(0)",
            "cute",
            {"cuda", "gpu", "cute"},
        ),
        ("import cutlass\ncutlass.cute.compile(f)", "cute", {"cuda", "gpu", "cute"}),
        ("try:\n    import cutlass.cute as cute\nexcept ImportError:\n    cute = None", "cute", set()),
        (GUARD + "import cutlass.cute as cute", "cute", set()),
        ("import triton\nimport nvshmem.core", "triton", {"triton", "cuda", "gpu", "nvshmem4py"}),
        ("S = '#include \"kittens.cuh\"\\n__global__ void f() {}'", "cuda", {"cuda", "gpu", "parallelkittens"}),
        ("S = '// #include \"kittens.cuh\"\\n__global__ void f() {}'", "cuda", {"cuda"}),
        ("S = '#include \"my_kittens.cuh\"\\n__global__ void f() {}'", "cuda", {"cuda"}),
        ("S = '#include <nvshmem.h>\\n__global__ void f() {}'", "cuda", {"cuda"}),
        ("import torch\ndef solution(x): return x + 1", "torch", set()),
        ("re.compile('a')", "torch", set()),
        (GUARD + "from pkb import kit\nif fast: kit.compile(S)", "cuda", set()),
        (GUARD + "from pkb import kit\nkit.compile(S) if fast else kit.build_cpp(S)", "cuda", set()),
        ("from pkb import kit\ndef solution(x):\n    if x.is_cuda: kit.compile(S)\n    return x", "cuda", set()),
        ("from pkb import kit\nif x.device.type == 'cuda':\n    kit.compile(S)", "cuda", set()),
        ("from pkb import kit\ndef solution(x):\n    assert x.is_cuda\n    kit.compile(S)", "cuda", {"cuda"}),
        ("from pkb import kit\nif not x.is_cuda:\n    raise ValueError\nkit.compile(S)", "cuda", {"cuda"}),
    ],
)
def test_backend_and_needs(text: str, kind: str, needed: set[str]) -> None:
    assert backend(source(text)) == kind
    assert needs(source(text)) == needed


# --- paths ----------------------------------------------------------------------------------------------------------

WITHOUT_PARSER = "tree-sitter is not installed: pip install 'pkb[analysis]'"
HANDLE = "peer = handle.get_buffer(1, (4,), dtype)\n"
DIST = "import torch\nimport torch.distributed as dist\n"


def kernel(line: str) -> str:
    return f'S = r"""\n__global__ void f(float* p) {{\n  {line}\n}}\n"""\n'


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (kernel('asm("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];");'), {"nvls"}),
        (kernel("pkb::Multimem<pkb::bf16>::st(p, v);"), {"nvls"}),
        (kernel('asm("cp.async.bulk.shared::cluster.global [%0], [%1];");'), {"tma"}),
        (kernel("cudaMemcpyPeerAsync(a, 0, b, 1, n, s);"), {"copy_engine"}),
        (kernel("cudaMemcpyAsync(a, b, n, cudaMemcpyDeviceToDevice, s);"), {"copy_engine"}),
        (kernel("cudaMemcpyAsync(table, host,\n n, cudaMemcpyHostToDevice, s);"), {"none"}),
        (kernel('asm("st.release.sys.global.u32 [%0], %1;");'), {"sm_load_store"}),
        (kernel('asm("ld.acquire.sys.global.u32 %0, [%1];");'), {"sm_load_store"}),
        (kernel('asm("ld.global.u32 %0, [%1];"); __threadfence();'), {"none"}),
        (kernel("__threadfence_system();"), {"sm_load_store"}),
        (kernel("ncclAllReduce(a, b, n, t, op, c, s);"), {"library"}),
        (kernel("// multimem.st cp.async.bulk ncclSend( st.release.sys"), {"none"}),
        (kernel("/* cudaMemcpyPeer(a,\n multimem.st */ p[0] = 1;"), {"none"}),
        (kernel('printf("http://x"); asm("multimem.st.f32 [%0], %1;");'), {"nvls"}),
        ("raise RuntimeError('multimem.st is not there')", {"none"}),
        ("'''uses cp.async.bulk {};'''\nx = 1", {"none"}),
        (DIST + "dist.all_reduce(x)", {"library"}),
        (DIST + "dist.P2POp(dist.isend, x, 1)", {"library"}),
        ("from torch.distributed import all_to_all_single as a\na(x, y)", {"library"}),
        (DIST + "torch.ops.c10d.allreduce_(x)", {"library"}),
        (DIST + "torch.ops.symm_mem.one_shot_all_reduce(x, 'sum', g)", {"library"}),
        (DIST + "torch.ops.symm_mem.multimem_all_reduce_(x, 'sum', g)", {"library", "nvls"}),
        (DIST + "dist.get_rank(); dist.get_world_size(); dist.ReduceOp.SUM", {"none"}),
        ("class A:\n    def all_reduce(self): ...\nA().all_reduce()", {"none"}),
        ("if handle.multicast_ptr: pass", {"none"}),
        ("f(handle.multicast_ptr)", {"nvls"}),
        ("f(handle.buffer_ptrs_dev, handle.signal_pad_ptrs)", {"sm_load_store"}),
        ("from pkb import kit\nk[1, 2](kit.buffers(h), *kit.barrier_pads(h))", {"sm_load_store"}),
        ("import triton.language as tl\ntl.load(a.to(tl.pointer_type(tl.float32)))", {"sm_load_store"}),
        ("import triton.language as tl\ntl.load(a + 1)", {"none"}),
        (HANDLE + "out.copy_(peer)", {"copy_engine"}),
        (HANDLE + "peer[2:].view(-1).copy_(x, non_blocking=True)", {"copy_engine"}),
        (HANDLE + "out[3] = peer", {"copy_engine"}),
        (HANDLE + "out += peer", {"sm_load_store"}),
        (HANDLE + "out.add_(peer)", {"sm_load_store"}),
        (HANDLE + "import torch\ntorch.add(x, peer, out=y)", {"sm_load_store"}),
        (HANDLE + "kernel[(8,)](peer, n)", {"sm_load_store"}),
        ("a = [h.get_buffer(r, s, d) for r in w]\nfor i, p in enumerate(a):\n    o[i].copy_(p)", {"copy_engine"}),
        ("peers = []\nfor r in ranks:\n    peers.append(h.get_buffer(r, s, d))\nout.copy_(peers[1])", {"copy_engine"}),
        ("t = {}\nt[1] = h.get_buffer(1, s, d)\nx = t[1] * 2", {"sm_load_store"}),
        ("own = h.get_buffer(h.rank, s, d)\nown.copy_(x)", {"none"}),
        (HANDLE + "n = peer.numel()\nv = peer.view(-1)", {"none"}),
        ("buffer.copy_(x)\nout.copy_(y)", {"none"}),
    ],
)
def test_paths(text: str, paths: set[str]) -> None:
    seen = {use.path for use in static_paths(source(text))}
    if "unknown" in seen and not cuda.available():
        pytest.skip(WITHOUT_PARSER)
    assert seen == paths


@pytest.mark.skipif(not cuda.available(), reason=WITHOUT_PARSER)
def test_a_path_carries_its_evidence() -> None:
    store = kernel('asm("multimem.st.f32 [%0], %1;");  // store')
    text = f"import torch.distributed as dist\n{store}dist.barrier()\n"
    uses = static_paths(source(text))
    assert [(use.path, use.line) for use in uses] == [("nvls", 4), ("library", 7)]
    assert uses[0].text == 'asm("multimem.st.f32 [%0], %1;");'
    assert uses[1].text == "dist.barrier()"


def test_comments_are_blanked_in_place() -> None:
    code = 'a; // b "c"\nd /* e\nf */ g "// h" \'"\' // i'
    assert strip_comments(code) == 'a;         \nd     \n     g "// h" \'"\'     '
    assert strip_comments("x /* never closed") == "x                "
