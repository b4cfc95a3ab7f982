"""What each PTX instruction is in C++: one function a family, which knows qualifiers in any order or raises `Unknown`."""

import re
from collections.abc import Callable, Sequence

from pkb.kit.emulated.ptx_async import bulk_or_async, grid_control, mapped, mbarrier
from pkb.kit.emulated.ptx_statement import EIGHT, HALF, HALVES, TYPES, Statement, Unknown, known, register_name

# --- memory ---


def _load(s: Statement, a: Sequence[str]) -> str:
    known(s)
    kind, outs = TYPES[s.type], s.vector(a[0])
    looks = "true" if s.has("acquire", "relaxed", "volatile", "mmio") and len(outs) == 1 else "false"
    code = f"{kind} emu_v[{len(outs)}]; emu::ptx::load(emu_v, {s.address(a[1])}, emu_at, {looks}); "
    return code + "".join(f"emu::ptx::set({s.value(out)}, emu_v[{n}]); " for n, out in enumerate(outs) if out != "_")


def _store(s: Statement, a: Sequence[str]) -> str:
    known(s)
    kind, values = TYPES[s.type], s.vector(a[1])
    given = ", ".join(s.get(value, kind) for value in values)
    return f"const {kind} emu_v[{len(values)}] = {{{given}}}; emu::ptx::store({s.address(a[0])}, emu_v, emu_at);"


_OPERATIONS = {
    "add": "old + b", "min": "b < old ? b : old", "max": "old < b ? b : old", "and": "old & b", "or": "old | b",
    "xor": "old ^ b", "exch": "b", "inc": "old >= b ? 0 : old + 1", "dec": "old == 0 || old > b ? b : old - 1",
}  # fmt: skip


def _operation(s: Statement, kind: str) -> str:
    """A function of (old, b) for the operation among the qualifiers."""
    name = next(q for q in s.qualifiers if q in _OPERATIONS)
    if s.type in HALVES:
        inner = {"add": "x + y", "min": "fminf(x, y)", "max": "fmaxf(x, y)"}[name]
        combine = f"[](float x, float y) {{ return {inner}; }}"
        return f"[](uint32_t old, uint32_t b) {{ return emu::ptx::both<{HALVES[s.type]}>(old, b, {combine}); }}"
    if s.type in HALF:
        h = HALF[s.type]
        inner = {"add": "x + y", "min": "fminf(x, y)", "max": "fmaxf(x, y)"}[name]
        return f"[](uint16_t old, uint16_t b) {{ float x = {h}::widen(old), y = {h}::widen(b); return {h}::narrow({inner}); }}"
    return f"[]({kind} old, {kind} b) {{ return ({kind})({_OPERATIONS[name]}); }}"


def _atom(s: Statement, a: Sequence[str]) -> str:
    known(s, *_OPERATIONS, "cas")
    kind = TYPES[s.type]
    out = a[0] if s.name == "atom" else None
    address, *values = a[1:] if s.name == "atom" else a
    if len(parts := s.vector(values[0])) > 1 and out is None:
        one = Statement(".".join(q for q in s.full.split(".") if q not in ("v2", "v4", "v8")) + " ", s._operands)
        size = {"f32": 4, "f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4}[s.type]
        base, _, offset = address.strip("[] ").partition("+")
        each = [f"[{base}+{int(offset or 0) + size * n}]" for n in range(len(parts))]
        return " ".join(f"{{ {_atom(one, (place, part))} }}" for place, part in zip(each, parts, strict=True))
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


def _multimem(s: Statement, a: Sequence[str]) -> str:
    known(s, *_OPERATIONS, "ld_reduce", "st", "red", "acc::f32")
    kind = TYPES[s.type]
    way = s.qualifiers[0]
    if way == "ld_reduce":
        outs = s.vector(a[0])
        code = f"{kind} emu_v[{len(outs)}]; "
        if s.type in HALVES and s.has("add"):
            code += f"emu::ptx::multicast_sum2<{HALVES[s.type]}>(emu_v, {s.address(a[1])}, emu_at); "
        else:
            code += f"emu::ptx::multicast_reduce(emu_v, {s.address(a[1])}, {_operation(s, kind)}, emu_at); "
        return code + "".join(f"emu::ptx::set({s.value(out)}, emu_v[{n}]); " for n, out in enumerate(outs))
    values = s.vector(a[1])
    code = f"const {kind} emu_v[{len(values)}] = {{{', '.join(s.get(value, kind) for value in values)}}}; "
    if way == "st":
        return code + f"emu::ptx::multicast_store({s.address(a[0])}, emu_v, emu_at);"
    if way == "red":
        return code + f"emu::ptx::multicast_update({s.address(a[0])}, emu_v, {_operation(s, kind)}, emu_at);"
    raise Unknown


def _fence(s: Statement, a: Sequence[str]) -> str:
    return "emu::ptx::fence(emu_at);"


def _elect(s: Statement, a: Sequence[str]) -> str:
    out, _, predicate = a[0].partition("|")
    code = f"const unsigned emu_m = {s.value(a[1])}, emu_first = __builtin_ctz(emu_m); emu_meet_warp(emu_m); "
    keep = f"emu::ptx::set({s.value(out)}, emu_first); " if out.strip() != "_" else ""
    return code + keep + f"{s.value(predicate)} = emu_lane() == emu_first;"


def _ldmatrix(s: Statement, a: Sequence[str]) -> str:
    if not s.has("m8n8") or s.type != "b16":
        raise Unknown
    outs = s.vector(a[0])
    trans = "true" if s.has("trans") else "false"
    code = f"unsigned emu_v[{len(outs)}]; emu::ptx::ldmatrix(emu_v, {s.address(a[1])}, {trans}, emu_at); "
    return code + "".join(f"emu::ptx::set({s.value(out)}, emu_v[{n}]); " for n, out in enumerate(outs))


_MMA = {
    "f16": (2, HALF["f16"]),
    "bf16": (2, HALF["bf16"]),
    "tf32": (1, "emu::ptx::Tf32"),
    **{kind: (4, eight) for kind, eight in EIGHT.items()},
}


def _mma(s: Statement, a: Sequence[str]) -> str:
    found = re.fullmatch(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(f32|f16)\.(\w+)\.\3\.\2", s.full)
    if found is None or (found[2] == "f16" and found[3] != "f16") or found[3] not in _MMA:
        raise Unknown
    each, format_ = _MMA[found[3]]  # numbers in a word
    outs, left, right, add = (s.vector(operand) for operand in a)
    if len(left) * 2 * each != int(found[1]) or len(right) * 2 != len(left):
        raise Unknown
    words = ", ".join(s.get(x, "unsigned") for x in left), ", ".join(s.get(x, "unsigned") for x in right)
    call = f"emu::ptx::mma<{format_}, {each}, {len(left)}>(emu_c, {{{words[0]}}}, {{{words[1]}}}); "
    if found[2] == "f32":
        code = f"float emu_c[4] = {{{', '.join(s.get(x, 'float') for x in add)}}}; {call}"
        return code + "".join(f"emu::ptx::set({s.value(out)}, emu_c[{n}]); " for n, out in enumerate(outs))
    halves = (f"emu::ptx::half<{HALF['f16']}>({s.get(x, 'unsigned')}, {high})" for x in add for high in (0, 1))
    code = f"float emu_c[4] = {{{', '.join(halves)}}}; {call}"
    pairs = (f"emu::ptx::pair<{HALF['f16']}>(emu_c[{2 * n + 1}], emu_c[{2 * n}])" for n in (0, 1))
    return code + "".join(f"emu::ptx::set({s.value(out)}, {pair}); " for out, pair in zip(outs, pairs, strict=True))


def _stmatrix(s: Statement, a: Sequence[str]) -> str:
    if not s.has("m8n8") or s.type != "b16":
        raise Unknown
    words = ", ".join(s.get(x, "unsigned") for x in s.vector(a[1]))
    trans = "true" if s.has("trans") else "false"
    return f"emu::ptx::stmatrix({s.address(a[0])}, {{{words}}}, {trans}, emu_at);"


# --- numbers ---


def _cvt(s: Statement, a: Sequence[str]) -> str:
    kinds = [q for q in s.qualifiers if q in TYPES or q in EIGHT or q in ("e4m3x2", "e5m2x2")]
    to, source = kinds[0], kinds[1]
    if s.has("sat") or (s.has("relu", "rz", "rna", "rm", "rp") and not (to[0] in "us" or source[0] in "us")):
        raise Unknown
    first = s.value(a[1])
    if to in HALVES and source == "f32":
        made = f"emu::ptx::pair<{HALVES[to]}>({s.get(a[1], 'float')}, {s.get(a[2], 'float')})"
    elif to in HALF and source == "f32":
        made = f"{HALF[to]}::narrow({s.get(a[1], 'float')})"
    elif source in HALF and to == "f32":
        made = f"{HALF[source]}::widen(emu::ptx::get<uint16_t>({first}))"
    elif to in EIGHT and source == "f32":
        made = f"{EIGHT[to]}::narrow({s.get(a[1], 'float')})"
    elif source in EIGHT and to == "f32":
        made = f"{EIGHT[source]}::widen(emu::ptx::get<uint8_t>({first}))"
    elif to in ("e4m3x2", "e5m2x2") and source == "f32":
        eight = EIGHT[to[:4]]
        made = f"(uint16_t)({eight}::narrow({s.get(a[2], 'float')}) | {eight}::narrow({s.get(a[1], 'float')}) << 8)"
    elif {to, source} <= {"f32", "f64"} or (source[0] in "us" and (to[0] in "us" or to in ("f32", "f64"))):
        made = f"({TYPES[to]}){s.get(a[1], TYPES[source])}"
    else:
        raise Unknown
    return f"emu::ptx::set({s.value(a[0])}, {made});"


def _arithmetic(expression: str) -> Callable[[Statement, Sequence[str]], str]:
    def write(s: Statement, a: Sequence[str]) -> str:
        if s.has("sat", "relu", "rz", "rm", "rp", "wide", "hi", "cc", "NaN", "xorsign"):
            raise Unknown
        if s.type in HALVES:
            h, words = HALVES[s.type], [s.get(x, "uint32_t") for x in a[1:]]
            if s.name == "fma":
                made = f"emu::ptx::fma2<{h}>({', '.join(words)})"
            else:
                inner = {"max": "fmaxf(x, y)", "min": "fminf(x, y)", "add": "x + y", "sub": "x - y", "mul": "x * y"}[
                    s.name
                ]
                made = f"emu::ptx::both<{h}>({words[0]}, {words[1]}, [](float x, float y) {{ return {inner}; }})"
            return f"emu::ptx::set({s.value(a[0])}, {made});"
        if s.type in HALF:
            raise Unknown
        kind = TYPES[s.type]
        names = ("emu_x", "emu_y", "emu_z")
        decl = "".join(f"const {kind} {names[n]} = {s.get(value, kind)}; " for n, value in enumerate(a[1:]))
        own = re.sub(r"\b([xyz])\b", r"emu_\1", expression)  # the candidate may have variables of these names
        return f"{decl}emu::ptx::set({s.value(a[0])}, ({kind})({own}));"

    return write


def _minmax(name: str) -> Callable[[Statement, Sequence[str]], str]:
    def write(s: Statement, a: Sequence[str]) -> str:
        sign = "<" if name == "min" else ">"
        expression = f"f{name}(x, y)" if s.type in ("f32", "f64") else f"x {sign} y ? x : y"
        return _arithmetic(expression)(s, a)

    return write


def _mov(s: Statement, a: Sequence[str]) -> str:
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


def _setp(s: Statement, a: Sequence[str]) -> str:
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


def _selp(s: Statement, a: Sequence[str]) -> str:
    kind = TYPES[s.type]
    return f"emu::ptx::set({s.value(a[0])}, {s.value(a[3])} ? {s.get(a[1], kind)} : {s.get(a[2], kind)});"


def _approximate(expression: str) -> Callable[[Statement, Sequence[str]], str]:
    def write(s: Statement, a: Sequence[str]) -> str:
        if s.type != "f32":
            raise Unknown
        own = re.sub(r"\bx\b", "emu_x", expression)
        return f"const float emu_x = {s.get(a[1], 'float')}; emu::ptx::set({s.value(a[0])}, {own});"

    return write


def _barrier(s: Statement, a: Sequence[str]) -> str:
    if s.qualifiers[0] == "cluster":
        return f"emu_cluster_arrive({int(not s.has('relaxed'))});" if s.has("arrive") else "emu_cluster_wait();"
    if s.has("red") or not a:
        raise Unknown
    way = "arrive" if s.has("arrive") else "sync"
    if not s.has("sync", "arrive"):
        raise Unknown
    if s.has("warp"):
        return f"emu_sync_warp({s.value(a[0])});"
    return f"emu_{way}_named({s.value(a[0])}, {s.value(a[1]) if len(a) > 1 else 0});"


def _branch(s: Statement, a: Sequence[str]) -> str:
    return f"emu_yield(); goto {register_name(a[0])};"


def _nothing(s: Statement, a: Sequence[str]) -> str:
    return "(void)0;"


def _prefetch(s: Statement, a: Sequence[str]) -> str:
    return f"(void){s.address(a[0])};"


WRITERS: dict[str, Callable[[Statement, Sequence[str]], str]] = {
    "ld": _load, "st": _store, "atom": _atom, "red": _atom, "multimem": _multimem, "fence": _fence, "membar": _fence,
    "cp": bulk_or_async, "mbarrier": mbarrier, "elect": _elect,
    "ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "mma": _mma, "cvt": _cvt, "mov": _mov, "setp": _setp, "selp": _selp,
    "fma": _arithmetic("sizeof(x) == 4 ? (decltype(x))fmaf(x, y, z) : (decltype(x))fma(x, y, z)"),
    "mad": _arithmetic("x * y + z"), "add": _arithmetic("x + y"), "sub": _arithmetic("x - y"), "mul": _arithmetic("x * y"),
    "max": _minmax("max"), "min": _minmax("min"), "and": _arithmetic("x & y"), "or": _arithmetic("x | y"),
    "xor": _arithmetic("x ^ y"), "not": _arithmetic("~x"), "shl": _arithmetic("x << y"), "shr": _arithmetic("x >> y"),
    "neg": _arithmetic("-x"), "abs": _arithmetic("x < 0 ? -x : x"),
    "ex2": _approximate("exp2f(x)"), "lg2": _approximate("log2f(x)"), "rcp": _approximate("1.f / x"),
    "rsqrt": _approximate("rsqrtf(x)"), "sqrt": _approximate("sqrtf(x)"), "tanh": _approximate("tanhf(x)"),
    "sin": _approximate("sinf(x)"), "cos": _approximate("cosf(x)"),
    "bar": _barrier, "barrier": _barrier, "bra": _branch, "griddepcontrol": grid_control, "mapa": mapped, "getctarank": mapped,
    "setmaxnreg": _nothing, "createpolicy": lambda s, a: f"emu::ptx::set({s.value(a[0])}, (uint64_t)0);", "prefetch": _prefetch,
    "nanosleep": lambda s, a: f"emu_sleep({s.get(a[0], 'uint32_t')});", "trap": lambda s, a: 'emu_fault("trap", nullptr);',
    "cvta": lambda s, a: (
        f"emu::ptx::set({s.value(a[0])}, "
        + (f"(uint64_t)__cvta_generic_to_shared((void*){s.get(a[1], 'uint64_t')})" if s.has("to") and s.has("shared")
           else f"(uint64_t)(emu_shared_arena + {s.get(a[1], 'uint64_t')})" if s.has("shared") else s.get(a[1], "uint64_t"))
        + ");"
    ),
}  # fmt: skip
PLAIN = {"mov", "setp", "selp", "and", "or", "xor", "not", "shl", "shr", "bra"}
"""Not worth a record: nothing about them can be approximate."""
_ORDERED = {"ld", "st", "atom", "red", "multimem", "fence", "membar"}
"""Their values are exact; a GPU may make others see them in another order, and a CPU does not."""
_APPROXIMATE = {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "tanh", "sin", "cos", "nanosleep", "mma", "prefetch"}


def fidelity(name: str) -> int:
    return 1 if name in _APPROXIMATE else 2 if name in _ORDERED else 0
