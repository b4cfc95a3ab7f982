"""Puts a prompt together from its parts. The same inputs give the same bytes, so that a hash names what a model was asked."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pkb.generate.prompt_examples import JUDGED, choose
from pkb.generate.prompt_hardware import hardware_facts, work_facts
from pkb.generate.prompt_parts import BACKENDS, EXAMPLE, MODEL, ORDER, SYSTEM, Parts, PartText
from pkb.generate.prompt_problem import problem_facts, reference_with_imports
from pkb.problems import registry
from pkb.problems.base import DTYPES, Problem
from pkb.roofline.hardware import load
from pkb.types.errors import UserError
from pkb.types.hardware import Hardware
from pkb.types.json_value import Json

PROMPT_SIZE = "paper"
"""What a prompt speaks of where the size is left open."""


@dataclass(frozen=True)
class Prompt:
    """What a model is sent, and enough to say later what it was."""

    system: str
    user: str
    parts: tuple[PartText, ...]
    """The pieces that `system` and `user` are made of, in order."""
    problem: str
    """The problem's stem."""
    backend: str
    hardware: str
    ranks: int
    size: str
    dtype: str
    examples: tuple[str, ...]
    """Stems of the worked examples shown."""
    parts_version: str
    """Names the texts of all templates; see `Parts.version`."""
    changed_parts: tuple[str, ...] = ()
    """Parts that came from a user's folder."""

    @property
    def sha256(self) -> str:
        """Of what the model reads: both messages."""
        return hashlib.sha256(f"{self.system}\0{self.user}".encode()).hexdigest()

    def to_dict(self) -> dict[str, Json]:
        return asdict(self) | {"sha256": self.sha256, "parts": [part._asdict() for part in self.parts]}


def compose(
    problem: Problem,
    *,
    backend: str,
    hardware: Hardware | str = "h100x8",
    ranks: int | None = None,
    size: str = PROMPT_SIZE,
    dtype: str | None = None,
    shots: int | None = None,
    parts_folder: Path | None = None,
) -> Prompt:
    """The prompt that asks for a candidate. `ranks` and `dtype` default to what the machine and the problem have, `shots` to
    one worked example if the backend has any."""
    if backend not in BACKENDS:
        raise UserError(f"no backend is called {backend!r}", f"one of {', '.join(BACKENDS)}")
    machine = load(hardware) if isinstance(hardware, str) else hardware
    ranks = _ranks(problem, machine) if ranks is None else ranks
    dtype = dtype or problem.default_dtype
    _check(problem, machine, ranks=ranks, size=size, dtype=dtype)
    shown = choose(backend, problem_id=problem.id, shots=shots)
    context: dict[str, Any] = {
        "problem": problem_facts(problem, ranks=ranks, size=size, dtype=dtype),
        "backend": {"name": backend, "title": BACKENDS[backend]},
        "hardware": hardware_facts(machine, dtype=dtype),
        "work": work_facts(problem, machine, ranks=ranks, size=size, dtype=dtype),
        "ranks": ranks,
        "size": size,
        "dtype": dtype,
        "dtype_long": str(DTYPES[dtype]).removeprefix("torch."),
        "shots": len(shown),
        "judged": JUDGED.get(backend, ""),
    }
    templates = Parts(parts_folder)
    system = templates.render(SYSTEM, context)
    pieces: list[PartText] = []
    for name in ORDER:
        if name == EXAMPLE:
            for number, example in enumerate(shown, start=1):
                other = registry.get(example.problem_id)
                facts = {
                    "stem": other.stem,
                    "summary": other.summary,
                    "reference": reference_with_imports(other),
                    "candidate": example.candidate,
                    "judged": JUDGED[backend],
                    "number": number,
                    "of": len(shown),
                }
                pieces.append(PartText(EXAMPLE, templates.render(EXAMPLE, context | {"example": facts})))
        else:
            name = f"{MODEL}-{backend}" if name == MODEL else name
            pieces.append(PartText(name, templates.render(name, context)))
    pieces = [piece for piece in pieces if piece.text]  # an empty file leaves its part out
    return Prompt(
        system=system,
        user="\n\n".join(piece.text for piece in pieces) + "\n",
        parts=(PartText(SYSTEM, system), *pieces),
        problem=problem.stem,
        backend=backend,
        hardware=machine.name,
        ranks=ranks,
        size=size,
        dtype=dtype,
        examples=tuple(example.stem for example in shown),
        parts_version=templates.version,
        changed_parts=templates.changed,
    )


def _ranks(problem: Problem, machine: Hardware) -> int:
    """As many as a node of eight, or the machine, has and the problem takes."""
    fitting = [n for n in problem.world_sizes if n <= min(8, machine.domain)]
    return max(fitting, default=problem.world_sizes[0])


def _check(problem: Problem, machine: Hardware, *, ranks: int, size: str, dtype: str) -> None:
    why_not = problem.why_not(size, ranks, dtype)
    if why_not is not None:
        raise UserError(why_not, f"`pkb show {problem.id}` lists sizes, dtypes and numbers of ranks")
    if ranks > machine.domain:
        raise UserError(f"{machine.name} joins {machine.domain} GPUs, and {ranks} ranks were asked for", "give fewer")
