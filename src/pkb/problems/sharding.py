"""Dividing extents between ranks: the arithmetic and the reasons that several problems share."""


def round_up(extent: int, world_size: int) -> int:
    """The least multiple of the number of ranks that is not below `extent`."""
    return -(-extent // world_size) * world_size


def why_not_equal(count: int, what: str, world_size: int) -> str | None:
    """Why `count` things (`heads`, `experts`) do not give every rank as many, or None."""
    return f"{count} {what} cannot be shared equally by {world_size} ranks" if count % world_size else None
