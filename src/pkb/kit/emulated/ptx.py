"""Inline assembly as C++: a reader of PTX statements that knows qualifiers in any order.

What it does not know becomes a call that stops the kernel with the instruction's name when it is executed, so that a way
through the kernel that is never taken costs nothing, and one that is taken is never guessed.
"""

import re
from collections.abc import Callable, Sequence

from pkb.kit.emulated.text import STRING, closing, split

TYPES = {
    "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t",
    "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
    "f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t", "f16x2": "uint32_t", "bf16x2": "uint32_t",
    "pred": "bool",
}  # fmt: skip
SPECIAL = {
    "globaltimer": "emu_now_ns()", "clock64": "(uint64_t)clock64()", "clock": "(uint32_t)clock64()",
    "laneid": "emu_lane()", "warpid": "(emu_linear_thread() / 32)", "smid": "0u", "nsmid": "132u",
    **{f"tid.{x}": f"threadIdx.{x}" for x in "xyz"}, **{f"ctaid.{x}": f"blockIdx.{x}" for x in "xyz"},
    **{f"ntid.{x}": f"blockDim.{x}" for x in "xyz"}, **{f"nctaid.{x}": f"gridDim.{x}" for x in "xyz"},
    "lanemask_lt": "((1u << emu_lane()) - 1)", "lanemask_eq": "(1u << emu_lane())",
    "lanemask_le": "(~0u >> (31 - emu_lane()))", "lanemask_gt": "(~0u << emu_lane() << 1)",
    "lanemask_ge": "(~0u << emu_lane())",
}  # fmt: skip
_HALVES = {"bf16x2": "emu::ptx::Bf16", "f16x2": "emu::ptx::F16"}
_HALF = {"bf16": "emu::ptx::Bf16", "f16": "emu::ptx::F16"}
_EIGHT = {"e4m3": "emu::ptx::E4m3", "e5m2": "emu::ptx::E5m2"}


class Unknown(Exception):
    """An instruction, or a form of one, that has no translation."""


def to_cpp(inside: str) -> str:
    """What replaces `asm volatile(inside)`: an expression."""
    pieces = split(inside, ":")
    template = "".join(STRING.findall(pieces[0])).replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')
    operands = [operand for piece in pieces[1:3] for operand in _operands(piece)]
    names = {name: str(n) for n, name in enumerate(re.findall(r"\[(\w+)\]\s*\"", "".join(pieces[1:3])))}
    template = re.sub(r"%\[(\w+)\]", lambda m: "%" + names.get(m[1], "99"), template)
    template = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.S)
    if not template.strip():
        return "((void)0)"
    body = "".join(_Statement(line, operands).cpp() for line in _statements(template))
    return f"([&]() {{ {body} }}())"


def _operands(piece: str) -> list[str]:
    """`"=r"(v.x), "l"(p)` as `(v.x)` and `(p)`."""
    found, at = [], 0
    while (start := piece.find("(", at)) >= 0:
        at = closing(piece, start + 1) + 1
        found.append(piece[start:at])
    return found


def _statements(template: str) -> list[str]:
    """Instructions, declarations and labels. Braces of a block are dropped, those of a vector stay."""
    flat = re.sub(r"\s+", " ", template).strip()
    found = []
    for part in flat.split(";"):
        text = part.strip()
        while text.startswith(("{", "}")):
            text = text[1:].strip()
        while label := re.match(r"([$\w]+):(?!:)\s*", text):
            found.append(label[0].strip())
            text = text[label.end() :]
        if text:
            found.append(text)
    return found


class _Statement:
    """One instruction: `@p op.q.q d, [a], b`."""

    def __init__(self, text: str, operands: Sequence[str]) -> None:
        self.text, self._operands = text, operands

    def cpp(self) -> str:
        text = self.text
        if text.endswith(":"):
            return f"{_name(text[:-1])}: "
        if text.startswith(".reg"):
            return self._registers(text)
        guard = ""
        if found := re.match(r"@(!?)([%\w]+)\s+", text):
            guard = f"if ({found[1]}({self.value(found[2])})) "
            text = text[found.end() :]
        opcode, _, rest = text.partition(" ")
        self.name, *self.qualifiers = opcode.split(".")
        self.full = opcode
        arguments = [part.strip() for part in split(rest, ",")] if rest.strip() else []
        try:
            writer = _WRITERS.get(self.name)
            if writer is None:
                raise Unknown
            code = writer(self, arguments)
        except (Unknown, KeyError, ValueError, IndexError):
            return f'{guard}{{ emu_unsupported("{opcode}"); }} '
        if self.name in _PLAIN:
            return f"{guard}{{ {code} }} "
        at = f'static constexpr EmuAt emu_at{{"{opcode}", __FILE__, __LINE__}};'
        seen = f"static bool emu_seen = (emu_used(&emu_at, {_fidelity(self.name)}), true); (void)emu_seen;"
        return f"{guard}{{ {at} {seen} {code} }} "

    def _registers(self, text: str) -> str:
        kind, names = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text).groups()  # type: ignore[union-attr]
        found = []
        for name in names.split(","):
            if many := re.fullmatch(r"\s*([%\w]+)<(\d+)>\s*", name):
                found += [f"{_name(many[1])}{n}{{}}" for n in range(int(many[2]))]
            else:
                found.append(f"{_name(name.strip())}{{}}")
        return f"{TYPES[kind]} {', '.join(found)}; "

    # -- operands --

    def value(self, operand: str) -> str:
        operand = operand.strip()
        if found := re.fullmatch(r"%(\d+)", operand):
            return self._operands[int(found[1])]
        if operand.startswith("%%"):
            return SPECIAL[operand[2:]]
        if operand.startswith("%") and operand[1:] in SPECIAL:
            return SPECIAL[operand[1:]]
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            return f"__uint_as_float(0x{found[1]}u)"
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)[uU]?", operand):
            return operand
        if re.fullmatch(r"[%$A-Za-z_][\w$]*", operand):
            return _name(operand)
        raise Unknown(operand)

    def get(self, operand: str, kind: str) -> str:
        return f"emu::ptx::get<{kind}>({self.value(operand)})"

    def vector(self, operand: str) -> list[str]:
        return [part.strip() for part in operand.strip("{} ").split(",")] if operand.startswith("{") else [operand]

    def address(self, operand: str) -> str:
        inner, _, offset = operand.strip("[] ").partition("+")
        space = "shared" if any(q.startswith("shared") for q in self.qualifiers) else "generic"
        shift = f", {self.value(offset)}" if offset else ""
        return f"emu::ptx::{space}({self.value(inner)}{shift})"

    @property
    def type(self) -> str:
        """The last qualifier that is a type."""
        return next(q for q in reversed(self.qualifiers) if q in TYPES)

    def has(self, *names: str) -> bool:
        return any(name in self.qualifiers for name in names)


def _name(text: str) -> str:
    return "emu_r_" + re.sub(r"\W", "_", text)


# --- memory ---


def _load(s: _Statement, a: Sequence[str]) -> str:
    kind, outs = TYPES[s.type], s.vector(a[0])
    looks = "true" if s.has("acquire", "relaxed", "volatile", "mmio") and len(outs) == 1 else "false"
    code = f"{kind} emu_v[{len(outs)}]; emu::ptx::load(emu_v, {s.address(a[1])}, emu_at, {looks}); "
    return code + "".join(f"emu::ptx::set({s.value(out)}, emu_v[{n}]); " for n, out in enumerate(outs) if out != "_")


def _store(s: _Statement, a: Sequence[str]) -> str:
    kind, values = TYPES[s.type], s.vector(a[1])
    given = ", ".join(s.get(value, kind) for value in values)
    return f"const {kind} emu_v[{len(values)}] = {{{given}}}; emu::ptx::store({s.address(a[0])}, emu_v, emu_at);"


_OPERATIONS = {
    "add": "old + b", "min": "b < old ? b : old", "max": "old < b ? b : old", "and": "old & b", "or": "old | b",
    "xor": "old ^ b", "exch": "b", "inc": "old >= b ? 0 : old + 1", "dec": "old == 0 || old > b ? b : old - 1",
}  # fmt: skip


def _operation(s: _Statement, kind: str) -> str:
    """A function of (old, b) for the operation among the qualifiers."""
    name = next(q for q in s.qualifiers if q in _OPERATIONS)
    if s.type in _HALVES:
        inner = {"add": "x + y", "min": "fminf(x, y)", "max": "fmaxf(x, y)"}[name]
        combine = f"[](float x, float y) {{ return {inner}; }}"
        return f"[](uint32_t old, uint32_t b) {{ return emu::ptx::both<{_HALVES[s.type]}>(old, b, {combine}); }}"
    if s.type in _HALF:
        h = _HALF[s.type]
        inner = {"add": "x + y", "min": "fminf(x, y)", "max": "fmaxf(x, y)"}[name]
        return f"[](uint16_t old, uint16_t b) {{ float x = {h}::widen(old), y = {h}::widen(b); return {h}::narrow({inner}); }}"
    return f"[]({kind} old, {kind} b) {{ return ({kind})({_OPERATIONS[name]}); }}"


def _atom(s: _Statement, a: Sequence[str]) -> str:
    kind = TYPES[s.type]
    out = a[0] if s.name == "atom" else None
    address, *values = a[1:] if s.name == "atom" else a
    if any(value.startswith("{") for value in values):
        raise Unknown
    if s.has("cas"):
        expect, new = (s.get(value, kind) for value in values)
        code = f"const {kind} emu_e = {expect}, emu_n = {new}; "
        change, looks = "[=](auto old) { return old == emu_e ? emu_n : old; }", "true"
    else:
        code = f"const {kind} emu_b = {s.get(values[0], kind)}; auto emu_op = {_operation(s, kind)}; "
        change = f"[=]({kind} old) -> {kind} {{ return emu_op(old, emu_b); }}"
        looks = "true" if s.has("exch") else "emu::nothing(emu_b)"
    call = f"emu::ptx::atom<{kind}>({s.address(address)}, {change}, emu_at, {looks})"
    return code + (f"emu::ptx::set({s.value(out)}, {call});" if out and out != "_" else f"{call};")


def _multimem(s: _Statement, a: Sequence[str]) -> str:
    kind = TYPES[s.type]
    way = s.qualifiers[0]
    if way == "ld_reduce":
        outs = s.vector(a[0])
        code = f"{kind} emu_v[{len(outs)}]; "
        if s.type in _HALVES and s.has("add"):
            code += f"emu::ptx::multicast_sum2<{_HALVES[s.type]}>(emu_v, {s.address(a[1])}); "
        else:
            code += f"emu::ptx::multicast_reduce(emu_v, {s.address(a[1])}, {_operation(s, kind)}); "
        return code + "".join(f"emu::ptx::set({s.value(out)}, emu_v[{n}]); " for n, out in enumerate(outs))
    values = s.vector(a[1])
    code = f"const {kind} emu_v[{len(values)}] = {{{', '.join(s.get(value, kind) for value in values)}}}; "
    if way == "st":
        return code + f"emu::ptx::multicast_store({s.address(a[0])}, emu_v, emu_at);"
    if way == "red":
        return code + f"emu::ptx::multicast_update({s.address(a[0])}, emu_v, {_operation(s, kind)});"
    raise Unknown


def _fence(s: _Statement, a: Sequence[str]) -> str:
    return "__atomic_thread_fence(__ATOMIC_SEQ_CST);"


def _cp(s: _Statement, a: Sequence[str]) -> str:
    if s.full == "cp.async.commit_group":
        return "emu_copies_close();"
    if s.full == "cp.async.wait_group":
        return f"emu_copies_done({s.value(a[0])});"
    if s.full == "cp.async.wait_all":
        return "emu_copies_close(); emu_copies_done(0);"
    if s.full.startswith("cp.async.bulk.prefetch.L2"):
        return f"emu::ptx::prefetch({s.address(a[0])}, {s.value(a[1])});"
    if s.qualifiers[0] != "async" or s.qualifiers[1] not in ("ca", "cg"):
        raise Unknown
    to = f"emu::ptx::shared({s.value(a[0].strip('[] '))})"
    source = f"emu::ptx::generic({s.value(a[1].strip('[] '))})"
    size = s.value(a[2])
    read = s.value(a[3]) if len(a) > 3 else size
    return f"const unsigned emu_n = {read}; emu_copy_later({to}, {source}, emu_n, {size} - emu_n);"


def _ldmatrix(s: _Statement, a: Sequence[str]) -> str:
    if not s.has("m8n8") or s.type != "b16":
        raise Unknown
    outs = s.vector(a[0])
    trans = "true" if s.has("trans") else "false"
    code = f"unsigned emu_v[{len(outs)}]; emu::ptx::ldmatrix(emu_v, {s.address(a[1])}, {trans}); "
    return code + "".join(f"emu::ptx::set({s.value(out)}, emu_v[{n}]); " for n, out in enumerate(outs))


def _mma(s: _Statement, a: Sequence[str]) -> str:
    found = re.fullmatch(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(bf16|f16)\.\1\.f32", s.full)
    if found is None:
        raise Unknown
    outs, left, right, add = (s.vector(operand) for operand in a)
    c = ", ".join(s.get(x, "float") for x in add)
    words = ", ".join(s.get(x, "unsigned") for x in left), ", ".join(s.get(x, "unsigned") for x in right)
    code = f"float emu_c[4] = {{{c}}}; emu::ptx::mma<{_HALF[found[1]]}>(emu_c, {{{words[0]}}}, {{{words[1]}}}); "
    return code + "".join(f"emu::ptx::set({s.value(out)}, emu_c[{n}]); " for n, out in enumerate(outs))


# --- numbers ---


def _cvt(s: _Statement, a: Sequence[str]) -> str:
    kinds = [q for q in s.qualifiers if q in TYPES or q in _EIGHT or q in ("e4m3x2", "e5m2x2")]
    to, source = kinds[0], kinds[1]
    if s.has("relu", "rz", "rna", "rm", "rp") and not (to[0] in "us" or source[0] in "us"):
        raise Unknown
    first = s.value(a[1])
    if to in _HALVES and source == "f32":
        made = f"emu::ptx::pair<{_HALVES[to]}>({s.get(a[1], 'float')}, {s.get(a[2], 'float')})"
    elif to in _HALF and source == "f32":
        made = f"{_HALF[to]}::narrow({s.get(a[1], 'float')})"
    elif source in _HALF and to == "f32":
        made = f"{_HALF[source]}::widen(emu::ptx::get<uint16_t>({first}))"
    elif to in _EIGHT and source == "f32":
        made = f"{_EIGHT[to]}::narrow({s.get(a[1], 'float')})"
    elif source in _EIGHT and to == "f32":
        made = f"{_EIGHT[source]}::widen(emu::ptx::get<uint8_t>({first}))"
    elif to in ("e4m3x2", "e5m2x2") and source == "f32":
        eight = _EIGHT[to[:4]]
        made = f"(uint16_t)({eight}::narrow({s.get(a[2], 'float')}) | {eight}::narrow({s.get(a[1], 'float')}) << 8)"
    elif {to, source} <= {"f32", "f64"} or (source[0] in "us" and (to[0] in "us" or to in ("f32", "f64"))):
        made = f"({TYPES[to]}){s.get(a[1], TYPES[source])}"
    else:
        raise Unknown
    return f"emu::ptx::set({s.value(a[0])}, {made});"


def _arithmetic(expression: str) -> Callable[[_Statement, Sequence[str]], str]:
    def write(s: _Statement, a: Sequence[str]) -> str:
        if s.has("sat", "relu", "rz", "rm", "rp", "wide", "hi", "cc", "NaN", "xorsign"):
            raise Unknown
        if s.type in _HALVES:
            h, words = _HALVES[s.type], [s.get(x, "uint32_t") for x in a[1:]]
            if s.name == "fma":
                made = f"emu::ptx::fma2<{h}>({', '.join(words)})"
            else:
                inner = {"max": "fmaxf(x, y)", "min": "fminf(x, y)", "add": "x + y", "sub": "x - y", "mul": "x * y"}[
                    s.name
                ]
                made = f"emu::ptx::both<{h}>({words[0]}, {words[1]}, [](float x, float y) {{ return {inner}; }})"
            return f"emu::ptx::set({s.value(a[0])}, {made});"
        if s.type in _HALF:
            raise Unknown
        kind = TYPES[s.type]
        names = ("emu_x", "emu_y", "emu_z")
        decl = "".join(f"const {kind} {names[n]} = {s.get(value, kind)}; " for n, value in enumerate(a[1:]))
        own = re.sub(r"\b([xyz])\b", r"emu_\1", expression)  # the candidate may have variables of these names
        return f"{decl}emu::ptx::set({s.value(a[0])}, ({kind})({own}));"

    return write


def _minmax(name: str) -> Callable[[_Statement, Sequence[str]], str]:
    def write(s: _Statement, a: Sequence[str]) -> str:
        sign = "<" if name == "min" else ">"
        expression = f"f{name}(x, y)" if s.type in ("f32", "f64") else f"x {sign} y ? x : y"
        return _arithmetic(expression)(s, a)

    return write


def _mov(s: _Statement, a: Sequence[str]) -> str:
    kind = TYPES[s.type]
    outs, ins = s.vector(a[0]), s.vector(a[1])
    if len(outs) == len(ins) == 1:
        return f"emu::ptx::set({s.value(a[0])}, {s.get(a[1], kind)});"
    bits = {"b16": 16, "b32": 32, "b64": 64}[s.type] // max(len(outs), len(ins))
    part = f"uint{bits}_t"
    if len(ins) == 1:
        code = f"const {kind} emu_w = {s.get(a[1], kind)}; "
        return code + "".join(
            f"emu::ptx::set({s.value(out)}, ({part})(emu_w >> {n * bits})); " for n, out in enumerate(outs)
        )
    joined = " | ".join(f"({kind}){s.get(x, part)} << {n * bits}" for n, x in enumerate(ins))
    return f"emu::ptx::set({s.value(a[0])}, ({kind})({joined}));"


def _setp(s: _Statement, a: Sequence[str]) -> str:
    signs = {
        "eq": "==",
        "ne": "!=",
        "lt": "<",
        "le": "<=",
        "gt": ">",
        "ge": ">=",
        "lo": "<",
        "ls": "<=",
        "hi": ">",
        "hs": ">=",
    }
    if len(a) != 3 or "|" in a[0]:
        raise Unknown
    kind = TYPES[s.type]
    return f"{s.value(a[0])} = {s.get(a[1], kind)} {signs[s.qualifiers[0]]} {s.get(a[2], kind)};"


def _selp(s: _Statement, a: Sequence[str]) -> str:
    kind = TYPES[s.type]
    return f"emu::ptx::set({s.value(a[0])}, {s.value(a[3])} ? {s.get(a[1], kind)} : {s.get(a[2], kind)});"


def _approximate(expression: str) -> Callable[[_Statement, Sequence[str]], str]:
    def write(s: _Statement, a: Sequence[str]) -> str:
        if s.type != "f32":
            raise Unknown
        own = re.sub(r"\bx\b", "emu_x", expression)
        return f"const float emu_x = {s.get(a[1], 'float')}; emu::ptx::set({s.value(a[0])}, {own});"

    return write


def _barrier(s: _Statement, a: Sequence[str]) -> str:
    if s.has("cluster", "red") or not a:
        raise Unknown
    way = "arrive" if s.has("arrive") else "sync"
    if not s.has("sync", "arrive"):
        raise Unknown
    if s.has("warp"):
        return f"emu_sync_warp({s.value(a[0])});"
    return f"emu_{way}_named({s.value(a[0])}, {s.value(a[1]) if len(a) > 1 else 0});"


def _branch(s: _Statement, a: Sequence[str]) -> str:
    return f"emu_yield(); goto {_name(a[0])};"


def _nothing(s: _Statement, a: Sequence[str]) -> str:
    return "(void)0;"


def _prefetch(s: _Statement, a: Sequence[str]) -> str:
    return f"(void){s.address(a[0])};"


_WRITERS: dict[str, Callable[[_Statement, Sequence[str]], str]] = {
    "ld": _load, "st": _store, "atom": _atom, "red": _atom, "multimem": _multimem, "fence": _fence, "membar": _fence,
    "cp": _cp, "ldmatrix": _ldmatrix, "mma": _mma, "cvt": _cvt, "mov": _mov, "setp": _setp, "selp": _selp,
    "fma": _arithmetic("sizeof(x) == 4 ? (decltype(x))fmaf(x, y, z) : (decltype(x))fma(x, y, z)"),
    "mad": _arithmetic("x * y + z"), "add": _arithmetic("x + y"), "sub": _arithmetic("x - y"), "mul": _arithmetic("x * y"),
    "max": _minmax("max"), "min": _minmax("min"), "and": _arithmetic("x & y"), "or": _arithmetic("x | y"),
    "xor": _arithmetic("x ^ y"), "not": _arithmetic("~x"), "shl": _arithmetic("x << y"), "shr": _arithmetic("x >> y"),
    "neg": _arithmetic("-x"), "abs": _arithmetic("x < 0 ? -x : x"),
    "ex2": _approximate("exp2f(x)"), "lg2": _approximate("log2f(x)"), "rcp": _approximate("1.f / x"),
    "rsqrt": _approximate("rsqrtf(x)"), "sqrt": _approximate("sqrtf(x)"), "tanh": _approximate("tanhf(x)"),
    "sin": _approximate("sinf(x)"), "cos": _approximate("cosf(x)"),
    "bar": _barrier, "barrier": _barrier, "bra": _branch, "griddepcontrol": _nothing, "prefetch": _prefetch,
    "nanosleep": lambda s, a: "emu_yield();", "trap": lambda s, a: 'emu_fault("trap", nullptr);',
    "cvta": lambda s, a: (
        f"emu::ptx::set({s.value(a[0])}, "
        + (f"(uint64_t)__cvta_generic_to_shared((void*){s.get(a[1], 'uint64_t')})" if s.has("to") and s.has("shared")
           else f"(uint64_t)(emu_shared_arena + {s.get(a[1], 'uint64_t')})" if s.has("shared") else s.get(a[1], "uint64_t"))
        + ");"
    ),
}  # fmt: skip
_PLAIN = {"mov", "setp", "selp", "and", "or", "xor", "not", "shl", "shr", "bra"}
"""Not worth a record: nothing about them can be approximate."""
_ORDERED = {"ld", "st", "atom", "red", "multimem", "fence", "membar"}
"""Their values are exact; a GPU may make others see them in another order, and a CPU does not."""
_APPROXIMATE = {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "tanh", "sin", "cos", "nanosleep", "mma", "prefetch"}


def _fidelity(name: str) -> int:
    return 1 if name in _APPROXIMATE else 2 if name in _ORDERED else 0
