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
    mean_flops: float | None = None
    """The `mean_` figures: the same minimum, averaged over the ranks. None where the busiest rank is typical. On a shared GPU
    the work of all ranks falls on the same units, and W times the busiest would be more than there is to do."""
    mean_hbm_bytes: float | None = None
    mean_link_bytes: float | None = None
    """Of what is sent, and so of what is received: every byte is both."""
    least_link_bytes: float | None = None
    """What another algorithm than the one stated could do with, by unicast or multicast. The physical floor uses this, so
    that no clever kernel is rejected; bounds do not."""

    @property
    def typical_flops(self) -> float:
        return self.flops if self.mean_flops is None else self.mean_flops

    @property
    def typical_hbm_bytes(self) -> float:
        return self.hbm_bytes if self.mean_hbm_bytes is None else self.mean_hbm_bytes

    @property
    def typical_link_bytes(self) -> float:
        """Where one rank sends more than any receives, or the reverse, the smaller figure is nearer to the mean of both."""
        if self.mean_link_bytes is not None:
            return self.mean_link_bytes
        return min(self.link_sent_bytes, self.link_received_bytes)
