"""The times of a verdict, always with the platform they were taken on: a time on `virtual` is no time on NVLink."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pkb.cli.panel import plain
from pkb.platforms.registry import traits
from pkb.types.timing import OtherReading, tells_speed
from pkb.types.units import bandwidth_words, binds_words, time_words, window_words
from pkb.types.verdict import Decision, Roofline, Timing
from pkb.types.words import decision_words


def timing_part(timing: Timing, *, platform: str, believed: bool = True) -> RenderableType:
    """A rejected candidate's times are shown as its claim, without a decision, so that nobody quotes them."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, median, low, high, alg, bus in (
        (timing.against, timing.reference_us, timing.reference_p10_us, timing.reference_p90_us,
         timing.reference_alg_gbps, timing.reference_bus_gbps),
        ("candidate", timing.candidate_us, timing.candidate_p10_us, timing.candidate_p90_us,
         timing.candidate_alg_gbps, timing.candidate_bus_gbps),
    ):  # fmt: skip
        taken = f"{time_words(median)} (p10 {time_words(low, like=median)}, p90 {time_words(high, like=median)})"
        table.add_row(name, ", ".join(filter(None, (taken, bandwidth_words(alg, bus)))))
    interval = f"{timing.speedup:.2f}x, 95 % interval {timing.speedup_low:.2f} to {timing.speedup_high:.2f}"
    style = {Decision.FASTER: "green", Decision.SLOWER: "red"}.get(timing.decision, "") if tells_speed(platform) else ""
    decision = (
        (decision_words(timing.decision, platform, timing.against), style) if believed else ("not validated", "red")
    )
    table.add_row("speedup", Text.assemble(f"{interval}: ", decision))
    if timing.other is not None and believed:
        table.add_row("", other_words(timing.other))
    for kind, own in timing.speedup_by_kind.items():
        times = f"{time_words(own.reference_us)} to {time_words(own.candidate_us)}"
        table.add_row(f"  {kind}", f"{own.speedup:.2f}x, {own.speedup_low:.2f} to {own.speedup_high:.2f} ({times})")
    if timing.floor_us is None:
        table.add_row("floor", f"not known for {platform}")
    else:
        part = (
            f"; the candidate runs at {timing.floor_us / timing.candidate_us:.0%} of that limit"
            if timing.candidate_us > 0
            else ""
        )
        table.add_row("floor", f"{time_words(timing.floor_us)}{part}")
    table.add_row("limit", limit_words(timing.roofline, platform=platform, believed=believed, against=timing.against))
    table.add_row("clocks", plain(timing.clock_agreement))
    window = timing.window_speedup, timing.window_speedup_low, timing.window_speedup_high
    if words := window_words(*window, timing.empty_walls_us):
        table.add_row("", words)
    starts = f" of {len(timing.start_rounds)} starts of the ranks" if timing.start_rounds else ""
    calls = f"{timing.calls} calls in {timing.rounds} rounds{starts}"
    if timing.first_call_us is not None:
        calls += f"; first call {time_words(timing.first_call_us)}"
    table.add_row("calls", calls)
    where = traits(platform)
    parts: list[RenderableType] = [table, plain(where.taken, style="yellow" if where.shares_device else "dim")]
    if timing.note:
        parts.append(plain(timing.note, style="dim"))
    return Group(*parts)


def other_words(other: OtherReading) -> str:
    """`3.10x against the reference, 95 % interval 2.95 to 3.26 (412 us)`."""
    interval = f"95 % interval {other.speedup_low:.2f} to {other.speedup_high:.2f}"
    return f"{other.speedup:.2f}x against the {other.against}, {interval} ({time_words(other.us)})"


def limit_words(roofline: Roofline | None, *, platform: str, believed: bool = True, against: str = "reference") -> str:
    """`12.3 us (link-bound; latency 1.7 us; h200x8 datasheet): reference 8 %, candidate 31 %`."""
    if not believed:
        return "not compared with times that were not validated"
    if roofline is None:
        return (
            f"not known: no file for this hardware (`pkb probe` measures it, {platform}), or a problem without a cost"
        )
    shares = [
        f"{name} {share * 100:.3g} %"
        for name, share in ((against, roofline.reference_utilisation), ("candidate", roofline.candidate_utilisation))
        if share is not None
    ]
    return (
        f"{time_words(roofline.ideal_us)} ({binds_words(roofline.binds, roofline.latency_us)}; {roofline.hardware} "
        f"{roofline.origin}): {', '.join(shares)}; best kernels reach {time_words(roofline.reachable_us)}"
    )
