"""What must be the same on every machine of a sweep: our own files, and whatever else a time depends on."""

import importlib.metadata
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pkb
from pkb.analysis.machine_archive import files_of, judge_sha256

EVERYWHERE = ("torch",)
ON_GPUS = ("torch", "NCCL", "driver", "GPU")


@cache
def sources_hash() -> str:
    """Of every file of the package: a version number says nothing of a checkout."""
    return judge_sha256(files_of(Path(pkb.__file__).parent))


def software() -> dict[str, str]:
    from pkb.platforms import nccl
    from pkb.platforms.cuda import gpus

    path, found = nccl.suitable_nccl(), gpus()
    return {
        "torch": importlib.metadata.version("torch"),
        "NCCL": ".".join(map(str, nccl.version(path))) if path else "torch's own",
        "driver": found[0].driver if found else "",
        "GPU": found[0].name if found else "",
    }


def difference(one: Mapping[str, str], other: Mapping[str, str], *, gpu: bool) -> str:
    """What of it that matters there differs, in words; empty if nothing does."""
    odd = [name for name in (ON_GPUS if gpu else EVERYWHERE) if one.get(name) != other.get(name)]
    return ", ".join(f"{name} {one.get(name) or 'none'}, not {other.get(name) or 'none'}" for name in odd)
