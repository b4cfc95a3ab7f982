"""What a GPU hands over arrives bit for bit, through a file of its own and through one that is written to again."""

import os

import pytest
import torch

from pkb.rank.kept_files import KeptFiles
from pkb.rank.trees import CHUNK_BYTES, describe, pack_tensors, unpack

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kept", [False, True])
def test_tensors_of_a_gpu_arrive_bit_for_bit(kept: bool) -> None:
    device, files = torch.device("cuda"), KeptFiles()
    for number in range(4):
        tree = {
            "nothing": torch.empty(0, device=device),
            "few": torch.randn(5, device=device),
            "of the host": torch.randn(1000),
            "transposed": torch.randn(300, 700, device=device).t(),
            "chunks": torch.randint(0, 256, (3 * CHUNK_BYTES + 7 - number,), dtype=torch.uint8, device=device),
            "one chunk": torch.randint(0, 256, (CHUNK_BYTES,), dtype=torch.uint8, device=device).view(torch.bfloat16),
        }
        description, tensors = describe(tree)
        fd = files.pack(tensors) if kept else pack_tensors(tensors)
        read = unpack(description, fd, device=device, kept=kept)
        os.close(fd)
        for name, tensor in tree.items():
            assert read[name].is_cuda
            sent = tensor.to(device).contiguous()
            assert torch.equal(read[name].reshape(-1).view(torch.uint8), sent.reshape(-1).view(torch.uint8)), name
    files.close()
