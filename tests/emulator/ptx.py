"""Inline assembly of kernels as C++: each PTX instruction that our code uses has one line here.

An instruction that has none stops the build with its text, so a new one in the kit or in a solution cannot go unnoticed.
"""

import re
from collections.abc import Iterator

VECTOR_LOAD = r"(ld\.relaxed\.sys\.global|ld\.volatile\.global|ld\.global(\.nc)?(\.L1::no_allocate|\.cs)?)\.v4\.u32"
VECTOR_STORE = r"(st\.relaxed\.sys\.global|st\.global(\.L1::no_allocate|\.cs)?)\.v4\.u32"
FOUR = r" {%0,%1,%2,%3}, \[%4\];"
TO_FOUR = r" \[%0\], {%1,%2,%3,%4};"
MMA = r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.T\.T\.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
F16_PAIR = r"{\.reg \.b16 l, h; mov\.b32 {l, h}, %2; cvt\.f32\.f16 %0, l; cvt\.f32\.f16 %1, h;}"

INSTRUCTIONS = {
    r"mov\.u64 %0, %%globaltimer;": "{0} = emu_now_ns();",
    # Signals. What x86 orders without being told is not told apart: see README.md.
    r"st\.(release|relaxed)\.sys\.global\.u32 \[%0\], %1;": "emu::store({0}, {1});",
    r"ld\.(acquire|relaxed)\.(sys|gpu)\.global\.u32 %0, \[%1\];": "{0} = emu::load({1});",
    r"atom\.(release|acquire)\.sys\.global\.cas\.b32 %0, \[%1\], %2, %3;": "{0} = emu::cas({1}, {2}, {3});",
    r"atom\.(release\.sys|acq_rel\.gpu|acq_rel\.sys)\.global\.add\.u32 %0, \[%1\], %2;": "{0} = emu::add({1}, {2});",
    r"fence\.acq_rel\.(sys|gpu);": "__atomic_thread_fence(__ATOMIC_SEQ_CST);",
    # 16 bytes.
    VECTOR_LOAD + FOUR: "emu::load16({0}, {1}, {2}, {3}, {4});",
    VECTOR_STORE + TO_FOUR: "emu::store16({0}, {1}, {2}, {3}, {4});",
    r"cp\.async\.bulk\.prefetch\.L2\.global \[%0\], %1;": "emu::prefetch({0}, {1});",
    r"cp\.async\.cg\.shared\.global \[%0\], \[%1\], 16, %2;": "emu_copy_later(emu_shared() + {0}, {1}, {2});",
    r"cp\.async\.commit_group;": "emu_copies_close();",
    r"cp\.async\.wait_group %0;": "emu_copies_done({0});",
    # Numbers of 16 bits; the first operand of a conversion of two is the upper half.
    r"cvt\.rn\.bf16x2\.f32 %0, %1, %2;": "{0} = emu::pair<emu::Bf16>({1}, {2});",
    r"cvt\.rn\.f16x2\.f32 %0, %1, %2;": "{0} = emu::pair<emu::F16>({1}, {2});",
    r"cvt\.f32\.f16 %0, %1;": "{0} = emu::F16::widen({1});",
    F16_PAIR: "{0} = emu::half<emu::F16>({2}, 0); {1} = emu::half<emu::F16>({2}, 1);",
    r"fma\.rn\.bf16x2 %0, %1, %2, %3;": "{0} = emu::fma2<emu::Bf16>({1}, {2}, {3});",
    r"add\.rn\.f16x2 %0, %1, %2;": "{0} = emu::fma2<emu::F16>({1}, 0x3c003c00u, {2});",
    r"max\.bf16x2 %0, %1, %2;": "{0} = emu::max2<emu::Bf16>({1}, {2});",
    r"max\.f16x2 %0, %1, %2;": "{0} = emu::max2<emu::F16>({1}, {2});",
    # Tensor cores.
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16" + FOUR: "emu::ldmatrix({0}, {1}, {2}, {3}, {4}, false);",
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16" + FOUR: "emu::ldmatrix({0}, {1}, {2}, {3}, {4}, true);",
    MMA.replace("T", "bf16"): "emu::mma<emu::Bf16>({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9});",
    MMA.replace("T", "f16"): "emu::mma<emu::F16>({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9});",
    # The switch.
    r"multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.f32" + FOUR: (
        "emu::multicast_sum<float>({0}, {1}, {2}, {3}, {4});"
    ),
    r"multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v4\.bf16x2" + FOUR: (
        "emu::multicast_sum<emu::Bf16>({0}, {1}, {2}, {3}, {4});"
    ),
    r"multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v4\.f16x2" + FOUR: (
        "emu::multicast_sum<emu::F16>({0}, {1}, {2}, {3}, {4});"
    ),
    r"multimem\.st\.relaxed\.sys\.global\.v4\.(f32|bf16x2|f16x2)" + TO_FOUR: (
        "emu::multicast_store({0}, {1}, {2}, {3}, {4});"
    ),
    r"multimem\.red\.relaxed\.sys\.global\.add\.v4\.(f32|bf16x2|f16x2)" + TO_FOUR: (
        'emu_fault("multimem.red is not emulated", {0});'
    ),
    r"multimem\.red\.release\.sys\.global\.add\.u32 \[%0\], %1;": "emu::multicast_add({0}, {1});",
}
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class UnknownInstruction(Exception):
    """Inline assembly that has no line in INSTRUCTIONS."""


def to_cpp(source: str) -> str:
    """Preprocessed CUDA with every `asm(...)` statement replaced."""
    parts, done = [], 0
    for match in re.finditer(r"\basm\s*(?:volatile\s*)?\(", source):
        end = _closing(source, match.end())
        parts += [source[done : match.start()], _statement(source[match.end() : end])]
        done = end + 1
    return "".join([*parts, source[done:]])


def _characters(text: str, start: int = 0) -> Iterator[tuple[int, str, int]]:
    """Index, character and depth of parentheses after it, of what is not in a string."""
    at, depth = start, 0
    while at < len(text):
        if text[at] == '"':
            found = _STRING.match(text, at)
            assert found, text[at : at + 80]
            at = found.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        yield at, text[at], depth
        at += 1


def _closing(text: str, start: int) -> int:
    return next(at for at, _, depth in _characters(text, start) if depth < 0)


def _statement(inside: str) -> str:
    cuts = [at for at, character, depth in _characters(inside) if character == ":" and depth == 0]
    pieces = [inside[a + 1 : b] for a, b in zip([-1, *cuts], [*cuts, len(inside)], strict=True)]
    template = "".join(_STRING.findall(pieces[0])).replace("\\n", " ")
    template = re.sub(r"\s+", " ", template).strip()
    operands = [operand for piece in pieces[1:3] for operand in _operands(piece)]
    for pattern, cpp in INSTRUCTIONS.items():
        if re.fullmatch(pattern, template):
            return re.sub(r"{(\d)}", lambda found: operands[int(found[1])], cpp).removesuffix(";")
    raise UnknownInstruction(f"give it a line in ptx.py: {template}")


def _operands(piece: str) -> list[str]:
    """`"=r"(v.x), "l"(p)` as `(v.x)` and `(p)`."""
    found, at = [], 0
    while (start := piece.find("(", at)) >= 0:
        at = _closing(piece, start + 1) + 1
        found.append(piece[start:at])
    return found
