"""How an output differs from the truth: kinds that programs look up, and the one place where they become a sentence."""

from dataclasses import dataclass, field
from enum import StrEnum


class DifferenceKind(StrEnum):
    """In what the output differs."""

    STRUCTURE = "structure"
    SHAPE = "shape"
    DTYPE = "dtype"
    VALUES = "values"
    BITS = "bits"
    """Right within the tolerance, but not the same on all ranks, where the problem promises that."""


class Pattern(StrEnum):
    """What differing values look like."""

    SOME_RANKS = "some_ranks"
    """Not every rank differs; `Mismatch.ranks` says which do."""
    NAN = "nan"
    ZEROS = "zeros"
    STALE = "stale_data"
    """The differing elements are those of an earlier call's result."""
    LATER = "later_data"
    """The differing elements are those of a later call's result, the others are right."""
    OVERWRITTEN = "overwritten"
    """The whole result is that of a later call."""
    OWN_INPUT = "own_input"
    """An argument of the same rank came back."""
    TRANSPOSED = "transposed"
    """The right elements, with two axes exchanged."""
    CONSTANT_FACTOR = "constant_factor"
    CONSTANT_OFFSET = "constant_offset"
    FEW_ELEMENTS = "few_elements"
    SOME_ROWS = "some_rows"
    """Not every part of the first axis differs; `Mismatch.regions` says which do."""
    RIGHT_WHEN_REPEATED = "right_when_repeated"
    """The same call, made once more, gives the right result."""


@dataclass(frozen=True)
class Mismatch:
    """Where and how an output differs, as a person would be told: never the expected values of a whole tensor."""

    case: str
    """The case in words: size, ranks, trial, call, and the call's arguments that are no tensors."""
    ranks: tuple[int, ...]
    rank: int
    """The rank whose difference is described below."""
    output: str
    what: str
    """One sentence: structure, dtype, shape or values."""
    difference: DifferenceKind = DifferenceKind.VALUES
    patterns: tuple[Pattern, ...] = ()
    amount: float | None = None
    """Of the pattern: the share of NaN, the factor, the offset, how many calls away the other call is."""
    argument: str = ""
    """The argument that came back."""
    pattern: str = field(init=False)
    """The patterns as a sentence."""
    error_ratio: float | None = None
    """Error over tolerance; 1 would just pass. None when infinite or not a matter of values."""
    first_index: tuple[int, ...] | None = None
    first_got: float | str | None = None
    first_expected: float | str | None = None
    differing_fraction: float | None = None
    regions: tuple[tuple[str, float], ...] = ()
    """Where along the first axis the differing elements lie: (name of the part, share of it that differs)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", "; ".join(self._words(pattern) for pattern in self.patterns))

    def _words(self, pattern: Pattern) -> str:
        amount = 0.0 if self.amount is None else self.amount
        match pattern:
            case Pattern.SOME_RANKS:
                return f"{rank_words(self.ranks)} only"
            case Pattern.NAN:
                return f"NaN in {amount:.1%} of the elements"
            case Pattern.ZEROS:
                return "all zeros"
            case Pattern.STALE:
                other = "another call" if self.amount is None else f"an earlier call ({_calls(amount)} before)"
                return f"stale data: the differing elements are those of {other}"
            case Pattern.LATER:
                return f"data of a later call: the differing elements are those of {_calls(amount)} later"
            case Pattern.OVERWRITTEN:
                return f"overwritten: the whole result is that of a later call ({_calls(amount)} later)"
            case Pattern.TRANSPOSED:
                return "transposed: the right elements with two axes exchanged"
            case Pattern.RIGHT_WHEN_REPEATED:
                return "right when the same call is made once more"
            case Pattern.OWN_INPUT:
                return f"this rank's own {self.argument} came back"
            case Pattern.CONSTANT_FACTOR:
                return f"a constant factor: about {amount:.4g} times the expected values"
            case Pattern.CONSTANT_OFFSET:
                return f"off by a constant: about {amount:.4g}"
            case Pattern.FEW_ELEMENTS:
                return "a few elements only"
            case Pattern.SOME_ROWS:
                return f"confined to {', '.join(name for name, share in self.regions if share > 0)}"


def _calls(count: float) -> str:
    return "1 call" if count == 1 else f"{count:.0f} calls"


def rank_words(ranks: tuple[int, ...]) -> str:
    """`rank 3` or `ranks 1, 2`."""
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"
