"""Bytes to messages and back, driven by the field types of the messages.

A message is JSON: an object whose member `is` names the class and whose other members are exactly its fields. Decoding checks
everything before the object exists: types (a bool is no integer), ranges, lengths, finite numbers, depth, unknown and missing
members. Every text and every collection must state its bound, `Annotated[str, AtMost(200)]`, or its class cannot be decoded at
all; the decoders are made once per class.
"""

import json
import math
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin

from pkb.types.protocol.limits import MAX_DEPTH

TAG = "is"
DEEPEST = MAX_DEPTH + 8
"""Objects within objects: a tree of the deepest kind, and the message around it."""
WIDEST_INTEGER = 1 << 63

Message = TypeVar("Message")
Decode = Callable[[object, int], Any]
"""The value as JSON gave it, and how many objects may still be nested in it."""


class Malformed(ValueError):
    """Not a message, or not within its bounds; says which part, and never quotes more than a few characters of it."""

    def within(self, part: str) -> "Malformed":
        inner = str(self)
        return Malformed(f"{part}{inner}" if inner.startswith(("[", ".")) else f"{part}: {inner}")


@dataclass(frozen=True)
class AtMost:
    """Characters of a text, or entries of a tuple or dict."""

    count: int


@dataclass(frozen=True)
class Between:
    """Both ends included."""

    low: int
    high: int


def encode(message: object) -> bytes:
    """A `ValueError` where a number is not finite: JSON has no such numbers, and a message says such things in other words."""
    return _ENCODER.encode(message).encode()


def _members(message: object) -> dict[str, object]:
    if not is_dataclass(message):
        raise TypeError(f"a {type(message).__name__} is no part of a message")
    return {TAG: type(message).__name__} | vars(message)


def decode(body: bytes, classes: Iterable[type[Message]]) -> Message:
    """A message of one of these classes, or `Malformed`."""
    try:
        value = _PARSER.decode(body.decode())
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, more digits than Python converts, too deep
        raise Malformed(f"no JSON: {str(error)[:100]}") from None
    try:
        return typing.cast(Message, _one_of(tuple(classes))(value, DEEPEST))
    except RecursionError:
        raise Malformed("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise Malformed(f"{name} is no number")


_ENCODER = json.JSONEncoder(default=_members, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_PARSER = json.JSONDecoder(parse_constant=_refuse_constant)


# -- decoders ----------------------------------------------------------------------------------------------------------


@cache
def _one_of(classes: tuple[type, ...]) -> Decode:
    """An object of one of these classes, by its tag."""
    known = {cls.__name__: cls for cls in classes}

    def decode_one(value: object, depth: int) -> Any:
        if type(value) is not dict:
            raise Malformed(f"{_kind(value)} where an object is expected")
        tag = value.get(TAG)
        cls = known.get(tag) if type(tag) is str else None
        if cls is None:
            raise Malformed(f"unexpected {_shown(tag)}")
        return _fields_of(cls)(value, depth)

    return decode_one


@cache
def _fields_of(cls: type) -> Decode:
    hints = typing.get_type_hints(cls, include_extras=True)
    decoders = [(field.name, _decoder(hints[field.name])) for field in fields(cls)]
    expected = frozenset([TAG, *(name for name, _ in decoders)])

    def decode_fields(value: object, depth: int) -> Any:
        assert isinstance(value, dict)
        if depth <= 0:
            raise Malformed("nested too deeply")
        if value.keys() != expected:
            odd = next(iter(sorted(value.keys() ^ expected)))
            raise Malformed(f"{cls.__name__} {'lacks' if odd in expected else 'has no'} member {_shown(odd)}")
        found = {}
        for name, decoder in decoders:
            try:
                found[name] = decoder(value[name], depth - 1)
            except Malformed as error:
                raise error.within(f".{name}") from None
        try:
            return cls(**found)
        except Malformed:
            raise
        except ValueError as error:  # what the class itself checks: how its fields fit together
            raise Malformed(f"{cls.__name__}: {error}") from None

    return decode_fields


def _decoder(hint: Any) -> Decode:
    bounds: tuple[object, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        bounds = tuple(rest)
    most = next((bound.count for bound in bounds if isinstance(bound, AtMost)), None)
    span = next((bound for bound in bounds if isinstance(bound, Between)), None)
    origin = get_origin(hint)
    if hint is bool:
        return _boolean
    if hint is int:
        return _integer(span.low, span.high) if span else _integer(-WIDEST_INTEGER, WIDEST_INTEGER)
    if hint is float:
        return _number(span.low, span.high) if span else _number(-math.inf, math.inf)
    if hint is str:
        return _text(_stated(most, hint))
    if origin is Literal:
        return _choice(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _member(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(get_args(hint))
    if origin is tuple:
        parts = get_args(hint)
        if len(parts) == 2 and parts[1] is Ellipsis:
            return _sequence(_decoder(parts[0]), _stated(most, hint))
        return _fixed([_decoder(part) for part in parts])
    if origin is dict:
        key, item = get_args(hint)
        return _mapping(_decoder(key), _decoder(item), _stated(most, hint))
    if is_dataclass(hint):
        return _one_of((typing.cast(type, hint),))
    raise TypeError(f"a message cannot hold a {hint}")


def _stated(most: int | None, hint: object) -> int:
    if most is None:
        raise TypeError(f"{hint} needs a bound: Annotated[..., AtMost(...)]")
    return most


def _boolean(value: object, depth: int) -> bool:
    if type(value) is not bool:
        raise Malformed(f"{_kind(value)} where true or false is expected")
    return value


def _integer(low: int, high: int) -> Decode:
    def decode_integer(value: object, depth: int) -> int:
        if type(value) is not int:
            raise Malformed(f"{_kind(value)} where an integer is expected")
        if not low <= value <= high:
            raise Malformed(f"an integer that is not within {low} to {high}")
        return value

    return decode_integer


def _number(low: float, high: float) -> Decode:
    def decode_number(value: object, depth: int) -> float:
        whole = type(value) is int and -WIDEST_INTEGER <= value <= WIDEST_INTEGER
        if not whole and not (type(value) is float and math.isfinite(value)):
            raise Malformed(f"{_kind(value)} where a finite number is expected")
        number = float(typing.cast(float, value))
        if not low <= number <= high:
            raise Malformed(f"a number that is not within {low} to {high}")
        return number

    return decode_number


def _text(most: int) -> Decode:
    def decode_text(value: object, depth: int) -> str:
        if type(value) is not str:
            raise Malformed(f"{_kind(value)} where text is expected")
        if len(value) > most:
            raise Malformed(f"{len(value)} characters, {most} are allowed")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:  # half of a surrogate pair: nobody could write it into a verdict
                raise Malformed("text that is no Unicode") from None
        return value

    return decode_text


def _choice(allowed: tuple[Any, ...]) -> Decode:
    if not all(type(choice) is str for choice in allowed):
        raise TypeError(f"only texts can be told apart surely: {allowed}")

    def decode_choice(value: object, depth: int) -> str:
        if type(value) is not str or value not in allowed:
            raise Malformed(f"{_shown(value)} is none of {', '.join(allowed)}")
        return value

    return decode_choice


def _member(enum: type[StrEnum]) -> Decode:
    def decode_member(value: object, depth: int) -> StrEnum:
        if type(value) is not str or value not in enum._value2member_map_:
            raise Malformed(f"{_shown(value)} is no {enum.__name__}")
        return enum(value)

    return decode_member


def _sequence(item: Decode, most: int) -> Decode:
    def decode_sequence(value: object, depth: int) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Malformed(f"{_kind(value)} where a list is expected")
        if len(value) > most:
            raise Malformed(f"{len(value)} entries, {most} are allowed")
        return _items(value, [item] * len(value), depth)

    return decode_sequence


def _fixed(parts: list[Decode]) -> Decode:
    def decode_fixed(value: object, depth: int) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(parts):
            raise Malformed(f"{_kind(value)} where a list of {len(parts)} entries is expected")
        return _items(value, parts, depth)

    return decode_fixed


def _items(values: list[object], decoders: list[Decode], depth: int) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        for value, decoder in zip(values, decoders, strict=True):
            found.append(decoder(value, depth))
    except Malformed as error:
        raise error.within(f"[{len(found)}]") from None
    return tuple(found)


def _mapping(key: Decode, item: Decode, most: int) -> Decode:
    def decode_mapping(value: object, depth: int) -> dict[Any, Any]:
        if type(value) is not dict:
            raise Malformed(f"{_kind(value)} where an object is expected")
        if len(value) > most:
            raise Malformed(f"{len(value)} entries, {most} are allowed")
        try:
            return {key(name, depth): item(entry, depth) for name, entry in value.items()}
        except Malformed as error:
            raise error.within("[an entry]") from None

    return decode_mapping


def _union(hints: tuple[Any, ...]) -> Decode:
    """Alternatives that JSON itself tells apart: null, true, numbers, texts, lists; and classes, by their tags."""
    classes = tuple(hint for hint in hints if is_dataclass(hint))
    by_type: dict[type, Decode] = {dict: _one_of(classes)} if classes else {}
    for hint in hints:
        if not is_dataclass(hint):
            for kind in _json_types(hint):
                if kind in by_type and kind is not int:
                    raise TypeError(f"{hints} cannot be told apart")
                by_type.setdefault(kind, _nothing if hint is type(None) else _decoder(hint))
    if float in by_type:
        by_type.setdefault(int, by_type[float])

    def decode_union(value: object, depth: int) -> Any:
        decoder = by_type.get(type(value))
        if decoder is None:
            raise Malformed(f"an unexpected {_kind(value)}")
        return decoder(value, depth)

    return decode_union


def _nothing(value: object, depth: int) -> None:
    return None


def _json_types(hint: Any) -> tuple[type, ...]:
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    origin = get_origin(plain)
    if plain in (type(None), bool, int, float, str):
        return (plain,)
    if origin is Literal or (isinstance(plain, type) and issubclass(plain, StrEnum)):
        return (str,)
    if origin in (tuple, dict):
        return (list if origin is tuple else dict,)
    raise TypeError(f"a union cannot hold a {hint}")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")


def _shown(value: object) -> str:
    return repr(value[:40]) if isinstance(value, str) else _kind(value)
