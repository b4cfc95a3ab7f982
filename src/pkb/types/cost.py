"""What a problem costs at least: the input of every roofline bound."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The algorithmic minimum of one call, for the busiest rank.

    Link bytes count what crosses this rank's link with unicast transfers; a copy to itself is free. The `switch_` pair says
    what in-switch reduction or multicast would make of them, or is None where the switch cannot help.
    """

    flops: float
    hbm_bytes: float
    link_sent_bytes: float
    link_received_bytes: float
    phases: int
    """Dependent communication steps: step n+1 cannot start before data of step n has arrived."""
    switch_sent_bytes: float | None = None
    switch_received_bytes: float | None = None
    note: str = ""
    """Why the minimum is below what the reference issues, where it is."""
