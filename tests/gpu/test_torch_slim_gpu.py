"""Our torch header on a GPU: an extension that is built without torch's headers behaves like any other."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

from pkb.judge.stages.build import prebuild
from pkb.kit import slim
from pkb.kit.cpp import find_cxx
from pkb.kit.extension import compile_cuda_extension, extension_recipe

pytestmark = pytest.mark.gpu
SOURCE = (Path(__file__).parents[1] / "cpu" / "torch_slim" / "kernels.cu").read_text()


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    return compile_cuda_extension("slim_kernels", SOURCE)


def test_it_is_built_with_our_header(kernels: ModuleType) -> None:
    assert slim.used_in(extension_recipe("slim_kernels", SOURCE).obtain().path)


def test_kernels_give_what_torch_gives(kernels: ModuleType) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        a, b = torch.randn(2, 1000, device="cuda").to(dtype).unbind()
        assert torch.equal(kernels.add(a, b), a + b)
    x = torch.randn(200, device="cuda")
    narrow, half = kernels.narrow(x)
    assert torch.equal(narrow, x.bfloat16())
    assert torch.equal(half, x.half())


def test_the_current_stream_is_torchs(kernels: ModuleType) -> None:
    assert kernels.stream() == torch.cuda.current_stream().cuda_stream
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert kernels.stream() == side.cuda_stream
        assert kernels.stream_device() == torch.cuda.current_device()
        kernels.synchronize()


def test_it_is_captured_in_a_graph_like_any_kernel(kernels: ModuleType) -> None:
    a, b = torch.ones(256, device="cuda"), torch.ones(256, device="cuda")
    kernels.add(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernels.add(a, b)
    a.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert out.eq(6).all()


def test_errors_have_torchs_types(kernels: ModuleType) -> None:
    expected = getattr(torch, "AcceleratorError", RuntimeError)
    with pytest.raises(expected, match="invalid argument"):
        kernels.fail(1)
    # CUDA 13.0 with driver 580 leaves the second word out.
    with pytest.raises(expected, match=r"invalid (configuration )?argument"):
        kernels.bad_launch(torch.ones(1, device="cuda"))
    with pytest.raises(RuntimeError, match="expected tensors on a GPU"):
        kernels.add(torch.ones(1), torch.ones(1))
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        kernels.add(torch.ones(1, device="cuda").int(), torch.ones(1, device="cuda").int())
    with pytest.raises(TypeError, match="incompatible function arguments"):
        kernels.add(1, 2)
    torch.cuda.synchronize()


def test_cublas_has_torchs_handle(kernels: ModuleType) -> None:
    torch.ones(4, 4, device="cuda") @ torch.ones(4, 4, device="cuda")
    assert kernels.has_blas()


def test_the_judge_builds_with_it_behind_walls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)  # builds and ranks do not see it, so neither may what is looked for below
    find_cxx.cache_clear()
    candidate = tmp_path / "candidate.py"
    text = f"from utils.cuda_helpers import compile_cuda_extension\nx = compile_cuda_extension('walled', {SOURCE!r})\n"
    candidate.write_text(text)
    for cached in (False, True):
        report = prebuild(candidate, limit_s=300, environment={})
        try:
            assert (report.error, report.skipped, report.stopped) == (None, [], "")
            (built,) = report.built
            assert (built.headers, built.cached) == ("ours", cached)
            assert (report.folder / slim.adaptor_recipe().file_name).is_file()  # for what a rank builds later
        finally:
            report.discard()
