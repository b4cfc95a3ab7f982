"""What a problem costs at least: the input of every roofline bound, of the physical floor and of algBW and busBW."""

from dataclasses import dataclass
from typing import TypedDict, Unpack


class Local(TypedDict, total=False):
    """What the constructors of `Cost` named after collectives pass on: everything that the collective does not decide."""

    flops: float
    hbm_bytes: float
    note: str
    mean_flops: float | None
    mean_hbm_bytes: float | None
    mean_link_bytes: float | None
    least_link_bytes: float | None
    least_flops: float | None
    least_hbm_bytes: float | None


@dataclass(frozen=True)
class Cost:
    """The algorithmic minimum of one call, for the busiest rank.

    Link bytes count what crosses this rank's link with unicast transfers; a copy to itself is free. The `switch_` pair says
    what in-switch reduction or multicast would make of them, or is None where the switch cannot help.

    `Cost.all_reduce(payload, world_size, flops=..., hbm_bytes=...)` and its siblings fill in the traffic of a collective.
    Their payload is the S of nccl-tests. Costs of steps that follow each other add up.
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
    least_flops: float | None = None
    """Likewise of operations, averaged over the ranks: what a faster algorithm than the stated one needs."""
    least_hbm_bytes: float | None = None
    """Likewise of memory, averaged over the ranks: what a call with less to do needs, where calls differ."""
    payload_bytes: float | None = None
    """S as nccl-tests counts it, the numerator of algBW. None where the traffic is no collective."""

    @property
    def is_known(self) -> bool:
        """Whether anything was declared: a call that neither computes, nor moves, nor waits is none."""
        return any((self.flops, self.hbm_bytes, self.link_sent_bytes, self.link_received_bytes, self.phases))

    @classmethod
    def all_reduce(cls, payload: float, world_size: int, *, phases: int = 2, **local: Unpack[Local]) -> "Cost":
        """`payload`: the tensor of one rank. One phase where a message is so short that every rank reads all others'."""
        w = world_size
        through_switch = (1 + 1 / w) * payload  # every rank sends all of it to be added up, and hands out its W-th
        return _exchange(w, 2 * (w - 1) / w * payload, payload, phases, through_switch, through_switch, local)

    @classmethod
    def all_gather(cls, payload: float, world_size: int, *, phases: int = 1, **local: Unpack[Local]) -> "Cost":
        """`payload`: what every rank ends up with, the parts of all W ranks. Multicast sends a part once."""
        moved = payload * (world_size - 1) / world_size
        return _exchange(world_size, moved, payload, phases, payload / world_size, moved, local)

    @classmethod
    def reduce_scatter(cls, payload: float, world_size: int, *, phases: int = 1, **local: Unpack[Local]) -> "Cost":
        """`payload`: what every rank begins with, the blocks of all W ranks. The switch adds up the rank's own block too."""
        moved = payload * (world_size - 1) / world_size
        return _exchange(world_size, moved, payload, phases, payload, payload / world_size, local)

    @classmethod
    def all_to_all(cls, payload: float, world_size: int, *, phases: int = 1, **local: Unpack[Local]) -> "Cost":
        """`payload`: what a rank has for all W ranks, itself included. The switch cannot help."""
        moved = payload * (world_size - 1) / world_size
        return _exchange(world_size, moved, payload, phases, None, None, local)

    @classmethod
    def broadcast(cls, payload: float, world_size: int, *, phases: int = 1, **local: Unpack[Local]) -> "Cost":
        """`payload`: the tensor, which crosses every link once, along a pipelined chain or by multicast."""
        return _exchange(world_size, payload, payload, phases, payload, payload, local)

    reduce = broadcast
    """The same bytes the other way round: partial sums along a pipelined chain, or added up in the switch."""

    @property
    def bus_bytes(self) -> float:
        """What must cross the busiest direction of a link: the numerator of busBW. For each collective above it is
        `payload_bytes` times the factor of nccl-tests."""
        return max(self.link_sent_bytes, self.link_received_bytes)

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

    def __add__(self, other: "Cost") -> "Cost":
        """One step after the other. Where only one of them has a figure of its own for the switch or for the average rank,
        the other's plain figure is added to it."""
        both_known = self.payload_bytes is not None and other.payload_bytes is not None
        return Cost(
            flops=self.flops + other.flops,
            hbm_bytes=self.hbm_bytes + other.hbm_bytes,
            link_sent_bytes=self.link_sent_bytes + other.link_sent_bytes,
            link_received_bytes=self.link_received_bytes + other.link_received_bytes,
            phases=self.phases + other.phases,
            switch_sent_bytes=_sum(self, other, "switch_sent_bytes", "link_sent_bytes"),
            switch_received_bytes=_sum(self, other, "switch_received_bytes", "link_received_bytes"),
            note="; ".join(filter(None, (self.note, other.note))),
            mean_flops=_sum(self, other, "mean_flops", "flops"),
            mean_hbm_bytes=_sum(self, other, "mean_hbm_bytes", "hbm_bytes"),
            mean_link_bytes=_sum(self, other, "mean_link_bytes", "typical_link_bytes"),
            least_link_bytes=_sum(self, other, "least_link_bytes", "link_sent_bytes"),
            least_flops=_sum(self, other, "least_flops", "typical_flops"),
            least_hbm_bytes=_sum(self, other, "least_hbm_bytes", "typical_hbm_bytes"),
            payload_bytes=(self.payload_bytes or 0) + (other.payload_bytes or 0) if both_known else None,
        )


def _exchange(
    world_size: int,
    moved: float,
    payload: float,
    phases: int,
    switch_sent: float | None,
    switch_received: float | None,
    local: Local,
) -> Cost:
    """A collective in which every link carries as much in one direction as in the other. Alone, a rank moves nothing."""
    alone = world_size == 1
    figures: Local = {"flops": 0, "hbm_bytes": 0}
    figures.update(local)
    return Cost(
        link_sent_bytes=0 if alone else moved,
        link_received_bytes=0 if alone else moved,
        phases=0 if alone else phases,
        switch_sent_bytes=0 if alone and switch_sent is not None else switch_sent,
        switch_received_bytes=0 if alone and switch_received is not None else switch_received,
        payload_bytes=payload,
        **figures,
    )


def _sum(first: Cost, second: Cost, name: str, plain: str) -> float | None:
    if getattr(first, name) is None and getattr(second, name) is None:
        return None
    values = [getattr(cost, plain if getattr(cost, name) is None else name) for cost in (first, second)]
    return float(sum(values))
