"""ChaCha8 and the tree of BLAKE2s hashes as slow, plain Python: what the window's kernels must agree with."""

import hashlib
import struct

from pkb.rank.window.device import SENT_BYTES, digest_salt
from pkb.rank.window.kernels import DIGEST_BYTES, FANOUT, LEAF_BYTES, LEVELS, SEGMENT_BYTES

MASK = 0xFFFFFFFF


def _quarter(x: list[int], a: int, b: int, c: int, d: int) -> None:
    for first, second, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[first] = (x[first] + x[second]) & MASK
        mixed = x[third] ^ x[first]
        x[third] = (mixed << by | mixed >> (32 - by)) & MASK


def chacha8_block(key: bytes, counter: int, nonce: tuple[int, int, int], rounds: int = 8) -> bytes:
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, *nonce]
    x = list(start)
    for _ in range(rounds // 2):
        for i in range(4):
            _quarter(x, i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            _quarter(x, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & MASK for a, b in zip(x, start, strict=True)))


def sealed(data: bytes, key: bytes, *, part: int, rank: int, slot: int) -> bytes:
    stream = b"".join(chacha8_block(key, block, (part, rank, slot)) for block in range(-(-len(data) // 64)))
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))


def _node(data: bytes, salt: bytes, number: int, level: int) -> bytes:
    return hashlib.blake2s(
        data, digest_size=DIGEST_BYTES, salt=salt[:8], person=salt[8:], fanout=FANOUT, depth=255, leaf_size=LEAF_BYTES,
        node_offset=number, node_depth=level, inner_size=DIGEST_BYTES,
    ).digest()  # fmt: skip


def tree_digest(data: bytes, key: bytes) -> str:
    salt = digest_salt(key)
    segments = []
    for start in range(0, len(data), SEGMENT_BYTES):
        part = data[start : start + SEGMENT_BYTES]
        first = start // LEAF_BYTES
        nodes = [
            _node(part[at : at + LEAF_BYTES], salt, first + at // LEAF_BYTES, 0)
            for at in range(0, len(part), LEAF_BYTES)
        ]
        for level in range(1, LEVELS + 1):
            first //= FANOUT
            nodes = [
                _node(b"".join(nodes[at : at + FANOUT]), salt, first + at // FANOUT, level)
                for at in range(0, len(nodes), FANOUT)
            ]
        segments += nodes
    return hashlib.blake2s(b"".join(segments), digest_size=SENT_BYTES, salt=salt[:8], person=salt[8:]).hexdigest()
