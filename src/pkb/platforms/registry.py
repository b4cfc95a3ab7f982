"""Picks a platform by name, or the largest that the machine has."""

from pkb.platforms.base import Platform, PlatformFacts, PlatformTraits
from pkb.platforms.cpu import CpuPlatform
from pkb.platforms.node import NodePlatform
from pkb.platforms.nvml import machine
from pkb.platforms.virtual import VirtualPlatform
from pkb.types.case import AUTO
from pkb.types.errors import UserError

_LARGEST_FIRST: tuple[type[Platform], ...] = (NodePlatform, VirtualPlatform, CpuPlatform)
PLATFORMS = {kind.name: kind for kind in _LARGEST_FIRST}
"""Largest first: `auto` takes the first that is available."""


def names() -> tuple[str, ...]:
    """What a user may choose from, smallest first."""
    return tuple(reversed(PLATFORMS))


def check_name(name: str) -> None:
    """Wrong usage if it is neither a platform nor `auto`."""
    if name not in (AUTO, *PLATFORMS):
        raise UserError(f"no platform is called {name!r}", f"platforms are {', '.join((AUTO, *names()))}")


def traits(name: str) -> PlatformTraits:
    """Also of a platform that this installation does not have: nothing is assumed of it but that a time may mean anything."""
    kind = PLATFORMS.get(name)
    if kind is None:
        return PlatformTraits(name, device="", shares_device=False, times="", note="")
    return PlatformTraits(name, kind.device, kind.shares_device, kind.times, kind.note)


def detect() -> dict[str, PlatformFacts]:
    return {name: kind().facts() for name, kind in PLATFORMS.items()}


def resolve(name: str) -> str:
    """The platform meant by a name or by `auto`, which must be available here."""
    check_name(name)
    if name == AUTO:
        for candidate, facts in detect().items():
            if facts.available:
                return candidate
        raise UserError("no platform is available on this machine", "`pkb doctor` says what each one lacks")
    facts = PLATFORMS[name]().facts()
    if not facts.available:
        raise UserError(f"platform {name} is not available here: {facts.why_not}", "`pkb doctor` shows what is")
    return name


def passed_over(facts: PlatformFacts) -> str:
    """Why this is the platform that `auto` means here, on a machine whose GPUs it leaves unused; empty if there are none."""
    one_of_several = facts.shares_device and len(NodePlatform().gpus()) > 1
    none_of_them = traits(facts.name).device == "cpu" and (machine().gpus or machine().left_out)
    reasons = detect().items() if one_of_several or none_of_them else ()
    return "; ".join(f"{name}: {one.why_not}" for name, one in reasons if one.why_not)


def create(name: str) -> Platform:
    return PLATFORMS[name]()


def pick(asked: str) -> PlatformFacts:
    """What this machine has of a platform, or of that which `auto` means; wrong usage if it does not have it."""
    return create(resolve(asked)).facts()
