"""Finds, reads and writes descriptions of machines. Every figure of the roofline is in a TOML file, none in code.

A machine is named (`h100x8`: a file of `machines/`), given as a file, or found by the name of the GPU that the judge runs on.
What was measured on a machine wins over what a datasheet says of its kind.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from pkb.types.errors import UserError
from pkb.types.hardware import Ceilings, Hardware

MACHINES = Path(__file__).parent / "machines"
ENVIRONMENT = "PKB_HARDWARE"
"""Names a machine or a file that `for_device` takes instead of looking for one."""
DTYPES = ("bf16", "fp16", "fp32", "fp64")
OPTIONAL_DTYPES = ("fp8",)


def machines() -> list[str]:
    """Names of the machines that come with the package."""
    return sorted(path.stem for path in MACHINES.glob("*.toml"))


def load(name_or_path: str | Path) -> Hardware:
    """A machine by name, or from a file of the user's."""
    text = str(name_or_path)
    if text in machines():
        return _built_in(text)
    path = Path(text)
    if not path.is_file():
        raise UserError(
            f"no hardware is called {text!r}, and no file has that name",
            f"one of {', '.join(machines())}, or a .toml file such as `pkb probe` writes",
        )
    return _read(path)


def write_hardware(path: str | Path, hardware: Hardware) -> None:
    """Writes a file that `load` reads back as the same machine. What `load` would refuse is refused here."""
    text = _to_toml(hardware)
    _parse(tomllib.loads(text), where=str(path))
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def for_device(device_name: str, *, shared_gpu: bool) -> Hardware | None:
    """The machine that a device belongs to, or None where nothing is known of it.

    First found counts: the environment variable PKB_HARDWARE (a name or a file), what `pkb probe` has left in the cache, the
    built-in machine whose GPU has that name. The variable counts only for the device that it describes, so that it can be set
    for good.
    """
    if (named := os.environ.get(ENVIRONMENT)) and _is_a(load(named), device_name):
        found = load(named)
    elif (own := cache_path(device_name, shared_gpu=shared_gpu)).is_file():
        found = _read(own)
    elif (other := cache_path(device_name, shared_gpu=False)).is_file():
        found = _read(other)
    elif (known := built_in_for(device_name)) is not None:
        found = known
    else:
        return None
    if found.shared_gpu and not shared_gpu:
        raise UserError(
            f"the hardware {found.name} is a GPU that all ranks share, and here each rank has its own",
            f"give another file, or unset {ENVIRONMENT}",
        )
    return shared(found) if shared_gpu and not found.shared_gpu else found


def cache_path(device_name: str, *, shared_gpu: bool) -> Path:
    """Where `pkb probe` leaves what it measured on this kind of device."""
    kind = re.sub(r"^\d+x ", "", device_name.strip())
    slug = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") or "unknown"
    return Path.home() / ".cache" / "pkb" / "hardware" / f"{slug}{'-shared' if shared_gpu else ''}.toml"


def built_in_for(device_name: str) -> Hardware | None:
    """By the GPU's name as a word: `GB200` is no `B200`, `L40` no `L4`, `A10G` no `A10`, and `RTX 3090 Ti` or `H20-3e` are
    faster than what they are called after: a floor that is too high would reject honest times."""
    return next((machine for machine in map(_built_in, machines()) if _is_a(machine, device_name)), None)


def _is_a(machine: Hardware, device_name: str) -> bool:
    return re.search(rf"(?<![A-Z]){re.escape(machine.gpu)}(?![0-9A-Za-z]|-[0-9]| Ti)", device_name) is not None


def shared(hardware: Hardware) -> Hardware:
    """One GPU of a machine with all ranks on it: its memory plays the link, and there is no switch."""
    return replace(
        hardware,
        name=f"{hardware.gpu.lower()}-shared",
        title=f"one {hardware.gpu} shared by all ranks",
        shared_gpu=True,
        multicast=False,
        ideal=_without_link(hardware.ideal),
        reachable=_without_link(hardware.reachable),
    )


def _without_link(ceilings: Ceilings) -> Ceilings:
    return replace(ceilings, link_bytes_per_s=ceilings.hbm_bytes_per_s, switch_bytes_per_s=None)


@cache
def _built_in(name: str) -> Hardware:
    return _read(MACHINES / f"{name}.toml")


def _read(path: Path) -> Hardware:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} is no hardware file: {error}", f"compare it with {MACHINES}/h100x8.toml") from error
    return _parse(document, where=str(path))


def _parse(document: Mapping[str, Any], *, where: str) -> Hardware:
    """A checked machine; the error names the file and the key."""
    _check_keys(document, Hardware, where=where, optional=("origin",))
    read: dict[str, Any] = {"origin": "datasheet"}
    for key, value in document.items():
        if key in ("ideal", "reachable"):
            read[key] = _parse_ceilings(value, where=f"{where}: {key}", multicast=document["multicast"] is True)
        elif key in ("shared_gpu", "multicast", "tma"):
            if not isinstance(value, bool):
                raise UserError(f"{where}: {key} is {value!r}", "give true or false")
            read[key] = value
        elif key in ("domain", "sms", "l2_bytes", "memory_bytes"):
            read[key] = _count(value, where=f"{where}: {key}")
        else:
            if not isinstance(value, str) or not value:
                raise UserError(f"{where}: {key} is {value!r}", "give a word in quotes")
            read[key] = value
    return Hardware(**read)


def _parse_ceilings(table: Any, *, where: str, multicast: bool) -> Ceilings:
    if not isinstance(table, dict):
        raise UserError(f"{where} is no table", "give [ideal] and [reachable], each with rates and a table of flops")
    _check_keys(table, Ceilings, where=where, optional=() if multicast else ("switch_bytes_per_s",))
    if "switch_bytes_per_s" in table and not multicast:
        raise UserError(f"{where}: switch_bytes_per_s is for hardware with multicast", "leave it out")
    flops = table["flops"]
    if not isinstance(flops, dict):
        raise UserError(f"{where}: flops is no table", "give a rate for each dtype")
    for dtype in DTYPES:
        if dtype not in flops:
            raise UserError(f"{where}: flops.{dtype} is missing", "give it in FLOP/s")
    for dtype in flops:
        if dtype not in DTYPES + OPTIONAL_DTYPES:
            raise UserError(f"{where}: flops.{dtype} is not known", f"dtypes: {', '.join(DTYPES + OPTIONAL_DTYPES)}")
    numbers: dict[str, Any] = {"switch_bytes_per_s": None}
    numbers |= {key: _rate(value, where=f"{where}: {key}") for key, value in table.items() if key != "flops"}
    rates = {dtype: _rate(value, where=f"{where}: flops.{dtype}") for dtype, value in flops.items()}
    return Ceilings(flops=rates, **numbers)


def _check_keys(table: Mapping[str, Any], type_: type, *, where: str, optional: tuple[str, ...]) -> None:
    known = [field.name for field in fields(type_)]
    for key in table:
        if key not in known:
            raise UserError(f"{where}: {key} is not known", f"keys: {', '.join(known)}")
    for key in known:
        if key not in table and key not in optional:
            raise UserError(f"{where}: {key} is missing", f"keys: {', '.join(known)}")


def _count(value: Any, *, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{where} is {value!r}", "give a whole number above 0")
    return value


def _rate(value: Any, *, where: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0
    if not good:
        raise UserError(f"{where} is {value!r}", "give a number above 0")
    return float(value)


def _to_toml(hardware: Hardware) -> str:
    lines = [f"{f.name} = {_value(getattr(hardware, f.name))}" for f in fields(Hardware) if f.name not in _TABLES]
    for which in _TABLES:
        ceilings = hardware.ceilings(which)
        lines += ["", f"[{which}]"]
        for field in fields(Ceilings):
            value = getattr(ceilings, field.name)
            if field.name != "flops" and value is not None:
                lines.append(f"{field.name} = {_value(value)}")
        lines += ["", f"[{which}.flops]", *(f"{dtype} = {_value(rate)}" for dtype, rate in ceilings.flops.items())]
    return "\n".join(lines) + "\n"


_TABLES = ("ideal", "reachable")


def _value(value: str | bool | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's basic strings are JSON's, but for one character that TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
