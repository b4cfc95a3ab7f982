"""The probe's kernels on a GPU, each against what it must have done, and a whole probe whose figures physics allows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pkb import kit
from pkb.rank.probe.links import BULK_CHUNK, BULK_STAGES

pytestmark = pytest.mark.gpu

GUARD = 0x5A


@pytest.fixture(scope="module")
def kernels() -> Any:
    source = Path(__file__).parents[2] / "src" / "pkb" / "rank" / "probe" / "probe.cu"
    return kit.compile(source.read_text(), name="probe")


def needs_hopper() -> None:
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("bulk copies need compute capability 9.0")


@pytest.mark.parametrize("blocks", [1, 3, 8])
@pytest.mark.parametrize("nbytes", [16, 4096, 16 * 1023, 1 << 20, 5 * 16 * 77_777])
@pytest.mark.parametrize("chunk", [16, 1024, BULK_CHUNK])
def test_a_bulk_copy_brings_every_byte_and_no_other(kernels: Any, blocks: int, nbytes: int, chunk: int) -> None:
    """Fewer chunks than stages, more, none for some blocks, a ragged last one: all must end and be right."""
    needs_hopper()
    source = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device="cuda")
    target = torch.full((nbytes + 256,), GUARD, dtype=torch.uint8, device="cuda")
    inner = target[128 : 128 + nbytes]
    kernels.kernel("move_bulk")[blocks, 32, BULK_STAGES * chunk](inner, source, nbytes, kit.u32(chunk))
    torch.cuda.synchronize()
    assert torch.equal(inner, source)
    assert bool((target[:128] == GUARD).all())
    assert bool((target[128 + nbytes :] == GUARD).all())


def test_words_that_are_read_are_summed(kernels: Any) -> None:
    words = torch.randint(-(2**31), 2**31 - 1, (4 * 100_003,), dtype=torch.int32, device="cuda")
    total = torch.zeros(1, dtype=torch.int64, device="cuda")
    kernels.kernel("read_words")[7, 1024](words, words.numel() * 4, kit.i32(3), total)
    assert (int(total[0]) - 3 * int(words.sum(dtype=torch.int64))) % 2**32 == 0


@pytest.mark.parametrize("kernel", ["ping", "barriers"])
def test_exchanges_end_and_take_time(kernels: Any, kernel: str) -> None:
    """Two ranks played by two streams of one GPU, twice, so that counters go on where they were."""
    boxes = [torch.zeros(256, dtype=torch.int32, device="cuda") for _ in range(2)]
    table = kit.pointer_table(boxes)
    outs = [torch.zeros(2, dtype=torch.int64, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    rounds = 100
    for base in (0, rounds + 1):
        for rank, stream in enumerate(streams):
            own = [kit.i32(1 - rank), kit.i32(rank == 0)] if kernel == "ping" else [kit.i32(2)]
            with torch.cuda.stream(stream):
                kernels.kernel(kernel)[1, 1 if kernel == "ping" else 32](
                    table, kit.i32(rank), *own, kit.i32(rounds), kit.u32(base), 2_000_000_000, outs[rank]
                )
        torch.cuda.synchronize()
        for out in outs:
            taken_ns, ran_out = out.tolist()
            assert not ran_out
            assert 100 < taken_ns / rounds < 100_000


def test_a_wait_for_nobody_runs_out(kernels: Any) -> None:
    box = torch.zeros(256, dtype=torch.int32, device="cuda")
    other = torch.zeros(256, dtype=torch.int32, device="cuda")
    out = torch.zeros(2, dtype=torch.int64, device="cuda")
    kernels.kernel("ping")[1, 1](
        kit.pointer_table([box, other]), kit.i32(0), kit.i32(1), kit.i32(1), kit.i32(5), kit.u32(0), 10_000_000, out
    )
    assert out.tolist()[1] == 1


def test_a_quick_probe_of_this_gpu(tmp_path: Path) -> None:
    out = tmp_path / "here.toml"
    done = subprocess.run(
        [sys.executable, "-m", "pkb.cli.main", "probe", "--quick", "--ranks", "2", "--out", str(out), "--json", "-"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    document = json.loads(done.stdout)
    if document["platform"] == "cpu":
        pytest.skip("neither virtual nor node is available here")
    names = {(row["kind"], row["name"]) for row in document["rows"]}
    assert {("link", way) for way in ("copy_engine", "load", "store")} <= names
    assert {("matrix", dtype) for dtype in ("bf16", "fp16", "tf32", "fp32", "fp64")} <= names

    from pkb.cli.probe_hardware import above_ideal
    from pkb.roofline.hardware import load

    hardware = load(out)
    assert above_ideal(hardware) == [], "faster than the datasheet: something did not happen"
    assert hardware.reachable.flops["bf16"] > 2 * hardware.reachable.flops["fp64"]
    assert 0.1 < hardware.reachable.barrier_us < 100
