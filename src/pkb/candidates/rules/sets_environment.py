"""Changes how CUDA, NCCL, torch or Triton behave through the environment.

What it finds: writes of `NCCL_*`, `CUDA_*`, `TORCH_*`, `TRITON_*`, `MASTER_*`, `RANK` and the like in `os.environ`.
Variables that only steer a build (`TORCH_CUDA_ARCH_LIST`, `TORCH_EXTENSIONS_DIR`, `CUDA_HOME`, `TRITON_CACHE_DIR`,
...) are left alone.

Why: most of these are read once, before a candidate is loaded, so that a write has no effect and misleads its reader;
the rest would change the platform under the measurement. `LD_PRELOAD` is the matter of `process_tampering`.

Example:

    os.environ["NCCL_ALGO"] = "NVLS"

Use instead: nothing; the platform sets what a rank needs.
"""

import re

from pkb.candidates.rules import Reporter
from pkb.candidates.rules.process_tampering import environment_writes
from pkb.candidates.source import Source

_STEERING = re.compile(r"(?:NCCL|CUDA|TORCH|TRITON|NVSHMEM|GLOO|PYTORCH|PKB|MASTER|OMP)_\w+|RANK|WORLD_SIZE|LOCAL_RANK")
_BUILD_ONLY = frozenset(
    {"TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR", "CUDA_HOME", "CUDA_PATH", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR"}
)


def check(source: Source, report: Reporter) -> None:
    for key, line in environment_writes(source):
        if _STEERING.fullmatch(key) and key not in _BUILD_ONLY:
            report.warn(line, f"sets {key}")
