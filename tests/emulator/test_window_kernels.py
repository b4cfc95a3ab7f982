"""The kernels of the window on a CPU: they must agree with plain Python for every size and place in memory."""

import hashlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from emulate import Emulator

from pkb.kit.emulated import recipe
from pkb.kit.emulated.gxx import find_gxx
from pkb.rank.symmetric.activity import ACTIVITY
from pkb.rank.trees import as_bytes
from pkb.rank.window.device import DeviceWindow
from pkb.rank.window.kernels import SEGMENT_BYTES
from window_on_host import chacha8_block, sealed, tree_digest

KEY = hashlib.sha256(b"a key").digest()
SIZES = (0, 1, 3, 16, 63, 64, 65, 255, 256, 257, 2047, 2049, 5000)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceWindow]:
    if isinstance(find_gxx(), str):
        pytest.skip(str(find_gxx()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=0))
        for name in ("PKB_BUILD_DIR", "PKB_BUILD_CACHE"):  # put back after
            patch.setenv(name, "")
        patch.setattr(recipe, "_headers", vars(recipe)["_headers"])
        patch.setattr(ACTIVITY, "on_wait", None)
        emulator = Emulator(tmp_path_factory.mktemp("window"), resident=2, edits={})
        yield DeviceWindow(1, device=torch.device("cpu"), build=emulator.compile)


def data_of(size: int, seed: int = 0) -> bytes:
    return hashlib.shake_128(seed.to_bytes(4, "little")).digest(size)


def on_device(data: bytes, shift: int = 0) -> torch.Tensor:
    whole = torch.zeros(len(data) + 32, dtype=torch.uint8)
    start = -whole.data_ptr() % 16 + shift
    part = whole[start : start + len(data)]
    part.copy_(torch.tensor(list(data), dtype=torch.uint8))
    return part


def read(tensor: torch.Tensor) -> bytes:
    return bytes(as_bytes(tensor).tolist())


def test_the_plain_cipher_is_chacha() -> None:
    """RFC 8439, 2.3.2, with its 20 rounds."""
    key, nonce = bytes(range(32)), (0x09000000, 0x4A000000, 0)
    assert chacha8_block(key, 1, nonce, rounds=20).hex().startswith("10f1e7e4d13b5915500fdd1fa32071c4")


@pytest.mark.parametrize("shift", [0, 1, 8])
def test_opening_is_the_cipher_and_undoes_itself(window: DeviceWindow, shift: int) -> None:
    texts = [data_of(size, seed) for seed, size in enumerate(SIZES)]
    tensors = [on_device(text, shift) for text in texts]
    prepared = window.prepare(tensors)
    window.apply(prepared, KEY, rank=3, slot=7)
    for number, (tensor, text) in enumerate(zip(tensors, texts, strict=True)):
        assert read(tensor) == sealed(text, KEY, part=number, rank=3, slot=7)
    window.apply(prepared, KEY, rank=3, slot=7)
    assert [read(tensor) for tensor in tensors] == texts


def test_more_tensors_than_one_launch_takes(window: DeviceWindow) -> None:
    tensors = [torch.zeros(5, dtype=torch.uint8) for _ in range(70)]
    window.apply(window.prepare(tensors), KEY, rank=0, slot=0)
    assert read(tensors[69]) == sealed(bytes(5), KEY, part=69, rank=0, slot=0)
    assert len({read(tensor) for tensor in tensors}) == 70, "no two get the same keystream"
    assert window.commit([tensors], KEY)()[0] == tuple(tree_digest(read(tensor), KEY) for tensor in tensors)


@pytest.mark.parametrize("shift", [0, 1, 8])
def test_digests_are_the_tree_of_hashes(window: DeviceWindow, shift: int) -> None:
    sizes = (*SIZES, SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + 1, 2 * SEGMENT_BYTES + 300)
    texts = [data_of(size, seed) for seed, size in enumerate(sizes)]
    trees = [[on_device(text, shift) for text in texts[:4]], [], [on_device(text, shift) for text in texts[4:]]]
    expected = [tree_digest(text, KEY) for text in texts]
    assert window.commit(trees, KEY)() == [tuple(expected[:4]), (), tuple(expected[4:])]


def test_key_place_and_every_byte_count(window: DeviceWindow) -> None:
    text = bytearray(data_of(3 * 256 + 7))
    seen = {window.commit([[on_device(bytes(text))]], key)()[0][0] for key in (KEY, b"", KEY[::-1])}
    assert len(seen) == 3
    for where in (0, 255, 256, len(text) - 1):
        text[where] ^= 1
        seen.add(window.commit([[on_device(bytes(text))]], KEY)()[0][0])
        text[where] ^= 1
    assert len(seen) == 7
    assert window.commit([[torch.zeros(256, dtype=torch.uint8)]], KEY)() != (
        window.commit([[torch.zeros(255, dtype=torch.uint8)]], KEY)()
    )


def test_tensors_of_any_kind(window: DeviceWindow) -> None:
    tensors = [
        torch.randn(3, 5, dtype=torch.complex64), torch.tensor([True, False, True]), torch.randn(7, dtype=torch.float64),
        torch.randn(4, 6).bfloat16(), torch.tensor(2.5), torch.arange(9),
    ]  # fmt: skip
    before = [read(tensor) for tensor in tensors]
    prepared = window.prepare(tensors)
    window.apply(prepared, KEY, rank=0, slot=1)
    assert all(read(tensor) != was for tensor, was in zip(tensors, before, strict=True))
    window.apply(prepared, KEY, rank=0, slot=1)
    assert [read(tensor) for tensor in tensors] == before
    base = torch.randn(6, 8)
    assert window.commit([[base.t()]], KEY)()[0][0] == tree_digest(read(base.t().contiguous()), KEY)
    with pytest.raises(ValueError, match="contiguous"):
        window.prepare([base.t()])
