"""The window on a GPU: the cipher and the hash agree with plain Python, arguments open in stream order, company is noticed."""

import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from pkb.judge.crew.company import words_of
from pkb.rank.trees import as_bytes
from pkb.rank.window.device import DeviceWindow, Sentinel
from pkb.rank.window.kernels import SEGMENT_BYTES
from window_on_host import sealed, tree_digest

pytestmark = pytest.mark.gpu

KEY = hashlib.sha256(b"a key").digest()
SIZES = (0, 1, 3, 16, 63, 64, 65, 255, 256, 257, 2047, 2049, 5000, SEGMENT_BYTES, SEGMENT_BYTES + 1, 3 * SEGMENT_BYTES)
SPINNER = """
import torch
torch.cuda._sleep(1000)
torch.cuda.synchronize()
print("spinning", flush=True)
while True:
    for _ in range(8):
        torch.cuda._sleep(20_000_000)
    torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def window() -> DeviceWindow:
    properties = torch.cuda.get_device_properties(0)
    return DeviceWindow(properties.multi_processor_count, device=torch.device("cuda", 0))


@pytest.fixture
def spinner() -> Iterator[None]:
    """Another process that keeps the GPU busy."""
    process = subprocess.Popen([sys.executable, "-c", SPINNER], stdout=subprocess.PIPE, env=os.environ.copy())
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"spinning\n"
        yield
    finally:
        process.kill()
        process.wait(timeout=30)


def data_of(size: int, seed: int = 0) -> bytes:
    return hashlib.shake_128(seed.to_bytes(4, "little")).digest(size)


def on_device(data: bytes, shift: int = 0) -> torch.Tensor:
    whole = torch.zeros(len(data) + 32, dtype=torch.uint8, device="cuda")
    part = whole[shift : shift + len(data)]
    part.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else part)
    return part


def read(tensor: torch.Tensor) -> bytes:
    return bytes(as_bytes(tensor).cpu().tolist())


@pytest.mark.parametrize("shift", [0, 1, 8])
def test_opening_is_chacha8_and_undoes_itself(window: DeviceWindow, shift: int) -> None:
    texts = [data_of(size, seed) for seed, size in enumerate(SIZES)]
    tensors = [on_device(text, shift) for text in texts]
    prepared = window.prepare(tensors)
    window.apply(prepared, KEY, rank=3, slot=7)
    for number, (tensor, text) in enumerate(zip(tensors, texts, strict=True)):
        if len(text) <= 5000:
            assert read(tensor) == sealed(text, KEY, part=number, rank=3, slot=7)
    window.apply(prepared, KEY, rank=3, slot=7)
    assert [read(tensor) for tensor in tensors] == texts


@pytest.mark.parametrize("shift", [0, 1, 8])
def test_digests_are_the_tree_of_blake2s(window: DeviceWindow, shift: int) -> None:
    texts = [data_of(size, seed) for seed, size in enumerate(SIZES)]
    found = window.commit([[on_device(text, shift) for text in texts], []], KEY)()
    assert found == [tuple(tree_digest(text, KEY) for text in texts), ()]


def test_tensors_of_any_kind_and_more_than_one_launch_takes(window: DeviceWindow) -> None:
    tensors = [
        torch.randn(3, 5, dtype=torch.complex64), torch.tensor([True, False, True]), torch.randn(7, dtype=torch.float64),
        torch.randn(4, 6).bfloat16(), torch.tensor(2.5), torch.arange(9), torch.zeros(0, 4),
        torch.randn(8).to(torch.float8_e4m3fn),
        *(torch.full((5,), float(number)) for number in range(70)),
    ]  # fmt: skip
    tensors = [tensor.cuda() for tensor in tensors]
    before = [read(tensor) for tensor in tensors]
    prepared = window.prepare(tensors)
    window.apply(prepared, KEY, rank=0, slot=1)
    assert read(tensors[77]) == sealed(before[77], KEY, part=77, rank=0, slot=1)
    assert window.commit([tensors], KEY)()[0] == tuple(tree_digest(read(tensor), KEY) for tensor in tensors)
    window.apply(prepared, KEY, rank=0, slot=1)
    assert [read(tensor) for tensor in tensors] == before
    on_host = torch.arange(9.0)
    assert window.commit([[on_host]], KEY)() == window.commit([[on_host.cuda()]], KEY)()
    base = torch.randn(60, 80, device="cuda")
    assert window.commit([[base.t()]], KEY)()[0][0] == tree_digest(read(base.t().contiguous()), KEY)


def test_a_gigabyte_to_its_last_byte_and_at_what_rate(window: DeviceWindow) -> None:
    large = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
    prepared = window.prepare([large])
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    for _ in range(2):  # the second time is the one that is shown
        marks[0].record()
        window.apply(prepared, KEY, rank=0, slot=0)
        marks[1].record()
        read_digest = window.commit([[large]], KEY)
        marks[2].record()
        torch.cuda.synchronize()
    opened, hashed = (before.elapsed_time(after) for before, after in itertools.pairwise(marks))
    print(f"1 GiB opened in {opened:.3f} ms, hashed in {hashed:.3f} ms")
    assert not large.any(), "sealed and opened"
    before = read_digest()
    assert before == window.commit([[large.clone()]], KEY)()
    for where in (0, (1 << 29) + 12345, -1):
        large[where] = 1
        assert window.commit([[large]], KEY)() != before
        large[where] = 0
    assert window.commit([[large]], KEY)() == before


def test_who_does_not_wait_for_the_stream_finds_them_sealed(window: DeviceWindow) -> None:
    tensor = torch.arange(1 << 16, device="cuda")
    plain = tensor.clone()
    prepared = window.prepare([tensor])
    window.apply(prepared, KEY, rank=0, slot=0)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    torch.cuda._sleep(20_000_000)
    window.apply(prepared, KEY, rank=0, slot=0)
    with torch.cuda.stream(side):
        early = tensor.clone()
    behind = tensor.clone()
    torch.cuda.synchronize()
    assert torch.equal(behind, plain)
    assert not torch.equal(early, plain)


def test_what_is_not_written_by_the_end_is_not_in_the_digest(window: DeviceWindow) -> None:
    out = torch.zeros(1 << 16, device="cuda")
    late = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(late):
        torch.cuda._sleep(20_000_000)
        out.fill_(1.0)
    digest = window.commit([[out]], KEY)
    torch.cuda.synchronize()
    assert digest() == window.commit([[torch.zeros_like(out)]], KEY)()
    assert digest() != window.commit([[out]], KEY)()


def test_alone_it_sees_nobody() -> None:
    sentinel = Sentinel(torch.device("cuda", 0))
    looks = [sentinel.look(long=n % 2 == 0) for n in range(20)]
    print(f"waves {max(look.waves for look in looks):.3f}, gap {max(look.gap_us for look in looks):.1f} us")
    assert [words_of(look) for look in looks[1:]] == [""] * 19


def test_one_small_block_beside_ours_is_company() -> None:
    """As a kernel of another client of MPS would be: resident on one SM, using next to nothing of it."""
    sentinel = Sentinel(torch.device("cuda", 0))
    sentinel.look()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)
    look = sentinel.look()
    print(look)
    assert words_of(look)


def test_another_process_on_the_gpu_is_company(spinner: None) -> None:
    sentinel = Sentinel(torch.device("cuda", 0))
    looks = [sentinel.look() for _ in range(5)]
    print(looks)
    assert all(map(words_of, looks[1:]))
