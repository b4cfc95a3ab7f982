"""What tokens cost, from a table that the user gives. Prices change and differ by contract, so none come with the package.

["openai/gpt-5"]            # the model as it is given to --model
input = 1.25                # US dollars a million tokens
output = 10.0
cached_input = 0.125        # optional; else such tokens cost as much as other input
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pkb.types.errors import UserError

_NAMES = ("input", "output", "cached_input")


@dataclass(frozen=True)
class Price:
    """US dollars a million tokens."""

    input: float
    output: float
    cached_input: float | None = None

    def cost_usd(self, *, tokens_in: int, tokens_out: int, cached: int = 0) -> float:
        """`cached` of the `tokens_in` were read from the provider's cache."""
        of_cache = self.input if self.cached_input is None else self.cached_input
        return ((tokens_in - cached) * self.input + cached * of_cache + tokens_out * self.output) / 1e6

    def to_dict(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def price_of(model: str, table: Path) -> Price:
    """The model's row of a table; wrong usage if the table or the row is not there, or is not numbers."""
    try:
        rows = tomllib.loads(table.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"cannot read the prices in {table}: {error}", "docs/models.md shows the form") from error
    row = rows.get(model)
    if not isinstance(row, Mapping):
        known = ", ".join(rows) or "nothing"
        raise UserError(f"{table} has no prices for {model} (it has {known})", f'add a table ["{model}"]')
    return price_from(row, where=f'["{model}"] of {table}')


def price_from(row: Mapping[str, Any], *, where: str) -> Price:
    unknown = [name for name in row if name not in _NAMES]
    if unknown:
        raise UserError(f"{where} has a field {unknown[0]!r}", f"fields are {', '.join(_NAMES)}")
    for name in _NAMES:
        value = row.get(name)
        optional = name == "cached_input" and value is None
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        if not (optional or number):
            raise UserError(f"{where} has {name} = {value!r}", "give US dollars per million tokens")
    return Price(**{name: float(value) for name, value in row.items()})
