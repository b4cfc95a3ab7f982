"""`pkb probe` on the CPU platform, its arithmetic, and its promise to time no transfer that did not happen."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkb.cli.probe_hardware import above_ideal, reachable, to_hardware, write
from pkb.judge.oracle_only.probe import Measurement, Probe, combine, size_for
from pkb.kit import nvcc, nvrtc
from pkb.platforms.base import PlatformFacts
from pkb.roofline.hardware import load
from pkb.types.protocol.replies import ProbeRow, ProbeRows
from world import World

KERNELS = Path(__file__).parents[2] / "src" / "pkb" / "rank" / "probe" / "probe.cu"
HALF = 1 << 16


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pkb.cli.main", "probe", "--platform", "cpu", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_quick_probe_writes_curves_file_and_plot(tmp_path: Path) -> None:
    out, plot = tmp_path / "here.toml", tmp_path / "curves.svg"
    done = run("--quick", "--ranks", "2", "--out", out, "--plot", plot, "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)  # and nothing else is there
    assert (document["platform"], document["ranks"], document["quick"]) == ("cpu", 2, True)
    rows = document["rows"]
    seen = {(row["kind"], row["name"], row["who"]) for row in rows}
    for dtype in ("bf16", "fp32", "fp64"):
        assert {("matrix", dtype, "alone"), ("matrix", dtype, "together")} <= seen
    for way in ("load", "store"):
        for who, ranks in (("pair", 1), ("ring", 2)):
            curve = [row for row in rows if (row["kind"], row["name"], row["who"]) == ("link", way, who)]
            assert [row["size"] for row in curve] == [4096, 65536, 1 << 20, 4 << 20]
            assert {row["ranks"] for row in curve} == {ranks}
            assert curve[-1]["time_us"] > curve[0]["time_us"], "a thousand times the bytes cannot take less time"
    for row in rows:
        assert 0 < row["low_us"] <= row["time_us"] <= row["high_us"]
        if row["kind"] == "link":
            assert row["rate"] == pytest.approx(1e6 * row["size"] / row["time_us"])
            assert row["rate"] < 1e12, "no core copies a terabyte per second"
    assert "matrix fp8" in document["left_out"], "what is not measured is said"
    hardware = load(out)
    assert hardware.origin == "measured"
    assert hardware.shared_gpu
    assert hardware.ideal == hardware.reachable
    best = max(row["rate"] * row["ranks"] for row in rows if row["name"] == "fp64")
    assert hardware.reachable.flops["fp64"] == pytest.approx(best, rel=1e-3)
    assert f"Measured by `pkb probe` on {document['date']}: platform cpu, 2 ranks" in out.read_text()
    assert plot.read_text().lstrip().startswith("<?xml")
    assert plot.read_text().count("<path") > 20, "curves, not an empty frame"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ranks", "1"), "needs 2 to"),
        (("--plot", "curves.pdf"), "neither .png nor .svg"),
        (("--out", "."), "is a directory"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_measured(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "starting" not in done.stderr


# -- what arrives is looked at ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    pool = World(3)
    pool.call(_install, str(tmp_path_factory.mktemp("probe")))
    yield pool
    pool.close()


def _install(rank: int, size: int, folder: str) -> None:
    from pkb.rank.symmetric import memory as symmetric

    symmetric.install(Path(folder), timeout_s=30)


def _move(rank: int, size: int, fault: str, faulty: int) -> str:
    """A ring of pulls in which one rank's way has a fault; what the probe says about it on this rank."""
    import torch
    import torch.distributed as dist

    from pkb.rank.devices import CpuDevice
    from pkb.rank.probe.links import Links
    from pkb.rank.probe.sample import Sampler
    from pkb.types.protocol.commands import Effort

    sampler = Sampler(CpuDevice(), effort=Effort(2, 1.0, 20), meet=dist.barrier)
    links = Links(sampler, rank=rank, world_size=size, half_bytes=HALF)
    nbytes = 4096
    target = links.handle.get_buffer(rank, (HALF,), torch.uint8, HALF)
    source = links.handle.get_buffer((rank + 1) % size, (HALF,), torch.uint8, 0)
    wrong_peer = links.handle.get_buffer(rank, (HALF,), torch.uint8, 0)

    def move(offset: int) -> None:
        if rank != faulty or fault == "none":
            target[offset : offset + nbytes].copy_(source[offset : offset + nbytes])
        elif fault == "short":
            target[offset : offset + nbytes - 16].copy_(source[offset : offset + nbytes - 16])
        elif fault == "own data":
            target[offset : offset + nbytes].copy_(wrong_peer[offset : offset + nbytes])
        elif fault == "shifted":
            target[offset : offset + nbytes].copy_(source[offset : offset + nbytes].roll(16))

    def write_unasked(offset: int) -> None:
        target[:16].fill_(1)

    try:
        if fault == "unasked":  # only rank 0 should receive, and the faulty one writes all the same
            way = move if rank == 0 else write_unasked
            links.run("load", way, nbytes=nbytes, runs=rank in (0, faulty), receives=rank == 0)
        else:
            links.run("load", move, nbytes=nbytes, runs=True, receives=True)
    except RuntimeError as error:
        return str(error)
    return ""


def test_an_honest_ring_passes(three: World) -> None:
    assert three.call(_move, "none", 0) == ["", "", ""]


@pytest.mark.parametrize("fault", ["nothing", "short", "own data", "shifted", "unasked"])
def test_a_transfer_that_did_not_happen_is_an_error_with_rank_and_path(three: World, fault: str) -> None:
    zero, one, two = three.call(_move, fault, 2)
    assert (zero, one) == ("", ""), "their transfers were right"
    assert re.match(r"rank 2, load, messages of 4096 bytes: byte \d+", two)


# -- arithmetic -------------------------------------------------------------------------------------------------------


def test_times_of_ranks_are_combined_by_the_slowest() -> None:
    def answer(*us: float) -> ProbeRows:
        return ProbeRows((ProbeRow("load", 1000, 1000, us, blocks=4),))

    (row,) = combine("link", "ring", {1: answer(4, 10, 1), 0: answer(2, 2, 9), 2: answer()})
    assert (row.time_us, row.low_us, row.high_us, row.ranks) == (9, 4, 10, 2)
    assert row.rate == pytest.approx(1e6 * 1000 / 9)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("quick", [True, False])
def test_messages_fit_the_buffers_and_are_whole_vectors(device: str, quick: bool) -> None:
    size = size_for(device, quick=quick)
    sizes = size.message_sizes(size.half_bytes)
    assert sizes[0] == 4096
    assert sizes[-1] == size.half_bytes
    assert sizes == sorted(set(sizes))
    for nbytes in sizes:
        assert nbytes % 16 == 0
        assert size.half_bytes % nbytes == 0
    assert max(size.message_sizes(size.half_bytes // 8)) <= size.half_bytes // 8
    assert size.effort.most_calls < 1000, "a GPU's queue holds about that many launches"


def gpu_probe(platform: str, *, multicast: bool = False, scale: float = 1.0) -> Probe:
    def row(kind: str, name: str, who: str, ranks: int, rate: float | None, time_us: float = 1.0) -> Measurement:
        rate = rate * scale if rate else rate
        return Measurement(
            kind=kind, name=name, who=who, ranks=ranks, size=4096, blocks=None, time_us=time_us, low_us=time_us,
            high_us=time_us, rate=rate,
        )  # fmt: skip

    flops = {"bf16": 150e12, "fp16": 140e12, "tf32": 70e12, "fp32": 10e12, "fp64": 12e12}
    rows = [row("matrix", name, "alone", 1, rate) for name, rate in flops.items()]
    rows += [row("matrix", name, "together", 4, 0.9 * rate) for name, rate in flops.items()]
    rows += [row("memory", "copy", "together", 4, 0.9e12), row("memory", "read", "together", 4, 1e12)]
    rows += [row("memory", "l2_read", "together", 4, 9e12)]
    rows += [row("link", "load", "pair", 1, 400e9), row("link", "load", "ring", 4, 300e9)]
    rows += [row("link", "store", "ring", 4, 350e9)]
    if multicast:
        rows += [row("link", "multimem_load", "ring", 4, 260e9)]
    rows += [row("latency", "launch", "alone", 1, None, 2.0), row("latency", "round_trip", "pair", 2, None, 3.0)]
    return Probe(
        platform=platform, ranks=4, quick=False, device="NVIDIA H200", driver="580.95", date="2026-01-02 03:04:05+0000",
        seconds=1.0, note="", facts={"sms": 33, "l2_bytes": 5, "memory_bytes": 7, "capability": 90}, rows=rows,
    )  # fmt: skip


def facts(name: str) -> PlatformFacts:
    return PlatformFacts(name, available=True, max_ranks=8, memory_bytes=9)


def test_ranks_that_share_a_gpu_add_up_to_its_ceilings(tmp_path: Path) -> None:
    hardware = to_hardware(gpu_probe("virtual"), facts("virtual"))
    best = hardware.reachable
    assert best.flops == {"bf16": 540e12, "fp16": 504e12, "fp32": 252e12, "fp64": 43.2e12}
    assert best.hbm_bytes_per_s == 4e12, "L2 is not the memory"
    assert best.link_bytes_per_s == best.hbm_bytes_per_s
    assert (best.launch_us, best.barrier_us) == (2.0, 1.5)
    assert hardware.ideal.flops["bf16"] == 989e12, "the datasheet stays"
    assert (hardware.shared_gpu, hardware.multicast, hardware.sms) == (True, False, 132)
    assert above_ideal(hardware) == []
    write(tmp_path / "h.toml", hardware, gpu_probe("virtual"))
    assert load(tmp_path / "h.toml") == hardware
    assert "driver 580.95" in (tmp_path / "h.toml").read_text()


def test_a_gpu_per_rank_keeps_its_own_rate() -> None:
    best = reachable(gpu_probe("node", multicast=True))
    assert best.flops["bf16"] == 150e12
    assert best.hbm_bytes_per_s == 1e12
    assert best.link_bytes_per_s == 350e9, "the best way with all ranks at it, not one pair alone"
    assert best.switch_bytes_per_s == 260e9
    assert to_hardware(gpu_probe("node"), facts("node")).ideal.switch_bytes_per_s is None


def test_figures_above_the_datasheet_are_called_out() -> None:
    hardware = to_hardware(gpu_probe("virtual", scale=2.0), facts("virtual"))
    assert any(line.startswith("bf16 products: 109 %") for line in above_ideal(hardware))


# -- kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(nvrtc.load() is None and nvcc.find() is None, reason="neither NVRTC nor nvcc is on this machine")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_the_kernels_compile(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pkb import kit

    monkeypatch.setenv("PKB_BUILD_DIR", str(tmp_path))
    cubin = kit.compile(KERNELS.read_text(), name="probe", arch=arch).artifact.path.read_bytes()
    for kernel in (b"move_bulk", b"multimem_store", b"ping", b"barriers", b"read_words"):
        assert kernel in cubin


def test_kernels_and_launches_agree_on_their_constants() -> None:
    from pkb.rank.probe.links import BULK_CHUNK, BULK_STAGES, WAYS

    source = KERNELS.read_text()
    assert f"STAGES = {BULK_STAGES};" in source
    assert BULK_STAGES * BULK_CHUNK + 1024 <= 227 * 1024
    declared = set(re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(", source))
    assert {way.kernel for way in WAYS.values() if way.kernel} <= declared


def test_the_command_line_stays_light() -> None:
    code = "import sys, pkb.cli.probe; print({'torch', 'matplotlib', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
