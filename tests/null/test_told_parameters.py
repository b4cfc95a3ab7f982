"""What models are told of the kit's headers: parameters by name and in order, and what structs hold."""

import re
from pathlib import Path

from pkb import kit
from pkb.generate.prompt_parts import Parts

HEADERS = "".join(path.read_text() for path in (Path(kit.__file__).parent / "device").glob("*.cuh"))
TOLD = re.sub(r"//.*", "", Parts().source("model-cuda-kit").split("```cuda\n")[1].split("```")[0])
UNNAMED = {"void", "uint4", "u32", "u64", "float"}


def names(parameters: str) -> list[str]:
    return [re.findall(r"\w+", one.split("=")[0])[-1] for one in parameters.split(",") if one.strip()]


def test_parameters_are_told_as_the_headers_have_them() -> None:
    """A chunk where a row is meant is a kernel that builds, and leaves most of the tensor out."""
    checked = set()
    for function, parameters in re.findall(r"\b([a-z]\w+)(?:<T>)?\s*\(([^()]*)\)", TOLD):
        told = names(parameters)
        if not told or UNNAMED & {function, *told}:
            continue
        has = [names(one) for one in re.findall(rf"\b{function}\(([^()]*)\)\s*(?:const\s*)?\{{", HEADERS)]
        assert told in [one[: len(told)] for one in has], (function, told, has)
        checked.add(function)
    assert {"sum_one_shot", "sum_two_shot", "stage_rows", "finish_grid", "barrier_block"} <= checked


def test_structs_hold_addresses_as_the_headers_have_them() -> None:
    told = dict(re.findall(r"struct (\w+) \{ (char\* \w+)\[64\];", TOLD))
    assert set(told) == {"Pipe", "Peers"}
    assert "MAX_RANKS = 64;" in HEADERS
    for struct, member in told.items():
        assert re.search(rf"struct {struct} \{{[^}}]*?{re.escape(member)}\[MAX_RANKS\];", HEADERS), struct
