"""What a platform cannot run is not compiled for it."""

from pathlib import Path

import pytest

from pkb.judge.service import child
from pkb.judge.stages import build as build_stage
from pkb.judge.stages import prepare
from pkb.types.case import Case
from pkb.types.job import Job

CUDA = """
import cupy
from utils.cuda_helpers import compile_cuda_extension
extension = compile_cuda_extension("x", "#include <torch/extension.h>")
def solution(tensor):
    cupy.RawKernel("", "f")((1,), (1,), ())
    return extension.run(tensor)
"""
"""With a library that wants a GPU's driver: the extension alone would run on an emulated GPU."""
CPP = """
from pkb.kit import build_cpp
library = build_cpp("int x;")
def solution(tensor):
    return tensor
"""


@pytest.mark.parametrize(("text", "expected"), [(CUDA, 0), (CPP, 1), ("def solution(:\n", 0)])
def test_a_build_ahead_compiles_only_what_the_platform_can_run(
    text: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def prebuild(path: Path, *, limit_s: float, environment: dict[str, str]) -> build_stage.BuildReport:
        built.append(path)
        return build_stage.BuildReport(tmp_path / "place" / "artifacts")

    monkeypatch.setattr(prepare, "prebuild", prebuild)
    monkeypatch.setattr("os.nice", lambda step: step)
    file = tmp_path / "1_allreduce.py"
    file.write_text(text)
    child._build(Job(file, Case("01_allreduce", "cpu", 2, "tiny", "bf16", "quick")))
    assert len(built) == expected
