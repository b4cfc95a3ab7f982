"""Hardware files: what comes with the package, what a user writes, and which of them a device gets."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pkb.roofline import hardware as module
from pkb.roofline.hardware import built_in_for, cache_path, for_device, load, machines, shared, write_hardware
from pkb.types.errors import UserError
from pkb.types.hardware import Hardware


@pytest.fixture(autouse=True)
def no_files_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PKB_HARDWARE", raising=False)


def test_machines() -> None:
    assert machines() == [
        "a100x8", "a10x8", "a800x8", "b200x8", "b300x8", "gb200-nvl72", "h100x8", "h200x8", "h20x8", "h800x8", "l40sx8",
        "l4x8", "rtx3090x8", "rtx4090x8", "rtx5090x8", "rtxpro6000x8",
    ]  # fmt: skip


@pytest.mark.parametrize("name", machines())
def test_what_is_reachable_is_less_than_ideal(name: str) -> None:
    machine = load(name)
    assert machine.name == name
    for key, ideal in machine.ideal.flops.items():
        assert 0.5 * ideal < machine.reachable.flops[key] < ideal
    for part in ("hbm_bytes_per_s", "link_bytes_per_s"):
        assert 0.5 * getattr(machine.ideal, part) < getattr(machine.reachable, part) < getattr(machine.ideal, part)
    assert machine.ideal.launch_us < machine.reachable.launch_us
    assert machine.ideal.barrier_us < machine.reachable.barrier_us
    assert (machine.ideal.switch_bytes_per_s is not None) is machine.multicast
    assert (machine.reachable.switch_bytes_per_s is not None) is machine.multicast


@pytest.mark.parametrize("name", machines())
def test_every_figure_names_its_source(name: str) -> None:
    """A rate without a comment on its line, or on the one above its table's first line, cannot be checked by a reader."""
    lines = (module.MACHINES / f"{name}.toml").read_text().splitlines()
    for line in lines:
        if "bytes_per_s" in line or "_us" in line:
            assert "#" in line, line
    for table in ("[ideal.flops]", "[reachable.flops]"):
        start = lines.index(table)
        assert "#" in lines[start + 1], table


@pytest.mark.parametrize(
    "machine", [load(name) for name in machines()] + [shared(load("h200x8"))], ids=lambda m: m.name
)
def test_a_file_reads_back_as_what_was_written(machine: Hardware, tmp_path: Path) -> None:
    odd = replace(machine, title='a "quoted" \\ title\nof two lines \x7f ü 𝛼', origin="measured", sms=7)
    odd = replace(odd, reachable=replace(odd.reachable, launch_us=1 / 3, hbm_bytes_per_s=1.23456789e13))
    write_hardware(tmp_path / "new" / "own.toml", odd)
    assert load(tmp_path / "new" / "own.toml") == odd


def _document() -> dict[str, Any]:
    return tomllib.loads((module.MACHINES / "h100x8.toml").read_text())


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda d: d.pop("domain"), "domain is missing"),
        (lambda d: d.pop("ideal"), "ideal is missing"),
        (lambda d: d["ideal"].pop("hbm_bytes_per_s"), "ideal: hbm_bytes_per_s is missing"),
        (lambda d: d["reachable"]["flops"].pop("fp64"), "reachable: flops.fp64 is missing"),
        (lambda d: d["reachable"].pop("switch_bytes_per_s"), "reachable: switch_bytes_per_s is missing"),
        (lambda d: d.update(gpus=8), "gpus is not known"),
        (lambda d: d["ideal"].update(link=1.0), "ideal: link is not known"),
        (lambda d: d["ideal"]["flops"].update(fp5=1.0), "flops.fp5 is not known"),
        (lambda d: d.update(domain=0), "domain is 0"),
        (lambda d: d.update(sms=1.5), "sms is 1.5"),
        (lambda d: d.update(sms=True), "sms is True"),
        (lambda d: d.update(multicast=1), "multicast is 1"),
        (lambda d: d.update(gpu=""), "gpu is ''"),
        (lambda d: d.update(ideal=3), "ideal is no table"),
        (lambda d: d["ideal"].update(flops=3), "flops is no table"),
        (lambda d: d["ideal"].update(link_bytes_per_s=0), "ideal: link_bytes_per_s is 0"),
        (lambda d: d["ideal"].update(link_bytes_per_s="fast"), "ideal: link_bytes_per_s is 'fast'"),
        (lambda d: d["ideal"].update(barrier_us=float("inf")), "ideal: barrier_us is inf"),
        (lambda d: d["ideal"]["flops"].update(bf16=float("nan")), "flops.bf16 is nan"),
        (lambda d: d.update(multicast=False), "switch_bytes_per_s is for hardware with multicast"),
    ],
)
def test_a_wrong_file_is_refused_by_its_key(change: Any, key: str) -> None:
    document = _document()
    module._parse(document, where="own.toml")
    change(document)
    with pytest.raises(UserError, match=r"own\.toml: ") as caught:
        module._parse(document, where="own.toml")
    assert key in str(caught.value)


def test_what_is_no_file_or_no_toml(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="h100x8") as caught:
        load("h900x8")
    assert "h900x8" in str(caught.value)
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(UserError, match=r"bad\.toml is no hardware file"):
        load(tmp_path / "bad.toml")


def test_what_load_would_refuse_is_not_written(tmp_path: Path) -> None:
    broken = replace(load("h100x8"), ideal=replace(load("h100x8").ideal, link_bytes_per_s=float("nan")))
    with pytest.raises(UserError, match="link_bytes_per_s"):
        write_hardware(tmp_path / "x.toml", broken)
    assert not (tmp_path / "x.toml").exists()


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100x8"),
        ("8x NVIDIA H200", "h200x8"),
        ("NVIDIA A100-SXM4-80GB", "a100x8"),
        ("NVIDIA B200", "b200x8"),
        ("4x NVIDIA GB200", "gb200-nvl72"),
        ("NVIDIA A100-PCIE-40GB", "a100x8"),
        ("NVIDIA A10", "a10x8"),
        ("NVIDIA A800-SXM4-80GB", "a800x8"),
        ("NVIDIA L4", "l4x8"),
        ("NVIDIA L40S", "l40sx8"),
        ("8x NVIDIA H20", "h20x8"),
        ("NVIDIA H800", "h800x8"),
        ("NVIDIA B300 SXM6 AC", "b300x8"),
        ("NVIDIA GeForce RTX 3090", "rtx3090x8"),
        ("NVIDIA GeForce RTX 4090 D", "rtx4090x8"),
        ("2x NVIDIA GeForce RTX 5090", "rtx5090x8"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000x8"),
    ],
)
def test_built_in_by_device(device: str, name: str) -> None:
    found = for_device(device, shared_gpu=False)
    assert found is not None
    assert found == load(name)
    assert built_in_for(device) == load(name)


@pytest.mark.parametrize("device", [
        "", "2 cores, x86_64", "NVIDIA GH200 480GB", "NVIDIA A10G", "NVIDIA H20-3e", "NVIDIA L40", "NVIDIA A1000",
        "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GB300", "NVIDIA GeForce RTX 5090 Ti",
    ])  # fmt: skip
def test_unknown_device(device: str) -> None:
    assert for_device(device, shared_gpu=True) is None


def test_the_shared_gpu_has_its_memory_for_a_link() -> None:
    found = for_device("NVIDIA H200", shared_gpu=True)
    assert found is not None
    assert (found.name, found.shared_gpu, found.multicast) == ("h200-shared", True, False)
    assert found.ideal.link_bytes_per_s == 4.8e12
    assert found.ideal.switch_bytes_per_s is None
    assert found.reachable.link_bytes_per_s == found.reachable.hbm_bytes_per_s


def test_what_was_measured_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = "8x NVIDIA H100 80GB HBM3"
    probed = replace(load("h100x8"), name="mine", origin="measured")
    write_hardware(cache_path(device, shared_gpu=False), probed)
    assert for_device(device, shared_gpu=False) == probed
    on_one = for_device("NVIDIA H100 80GB HBM3", shared_gpu=True)
    assert on_one is not None
    assert (on_one.shared_gpu, on_one.origin) == (True, "measured"), "derived from what was measured on the node"
    own = replace(shared(probed), name="mine-shared")
    write_hardware(cache_path(device, shared_gpu=True), own)
    assert for_device(device, shared_gpu=True) == own
    assert for_device(device, shared_gpu=False) == probed

    write_hardware(tmp_path / "other.toml", replace(probed, name="other"))
    monkeypatch.setenv("PKB_HARDWARE", str(tmp_path / "other.toml"))
    found = for_device(device, shared_gpu=False)
    assert found is not None
    assert found.name == "other"
    assert for_device("2 cores, x86_64", shared_gpu=True) is None, "an H100's file says nothing of a CPU"


def test_a_shared_gpu_is_no_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_hardware(tmp_path / "one.toml", shared(load("h200x8")))
    monkeypatch.setenv("PKB_HARDWARE", str(tmp_path / "one.toml"))
    with pytest.raises(UserError, match="share"):
        for_device("8x NVIDIA H200", shared_gpu=False)
