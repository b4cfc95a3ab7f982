"""What one GPU cannot run, on a machine that can: GIN and NVSHMEM through a network adapter, multimem through an NVSwitch.

The judge's ranks have no network, so these are processes of torchrun's, without walls. Elsewhere each test skips and
says what the machine lacks.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pkb.platforms import nccl

pytestmark = pytest.mark.gpu
RANKS = Path(__file__).with_name("beyond_one_gpu_ranks.py")


@pytest.mark.parametrize("part", ["gin", "multimem", "internode"])
def test_it_runs_where_the_machine_can(part: str) -> None:
    library = nccl.suitable_nccl()
    if library is None:
        pytest.skip(nccl.HOW_TO_GET_NCCL)
    ranks = max(2, min(8, torch.cuda.device_count()))
    added = {"LD_PRELOAD": str(library), "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    if part == "internode":  # every PE is as far away as one on another machine
        added |= {"NVSHMEM_REMOTE_TRANSPORT": "ibrc", "NVSHMEM_DISABLE_P2P": "1"}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        str(RANKS),
        part,
    ]
    done = subprocess.run(command, env=os.environ | added, capture_output=True, text=True, check=False, timeout=300)
    said = [line for line in done.stdout.splitlines() if line.startswith(("NOT HERE", "AS EXPECTED"))]
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert len(said) == ranks, done.stdout
    if said[0].startswith("NOT HERE"):
        pytest.skip(said[0])
    assert set(said) == {"AS EXPECTED"}
