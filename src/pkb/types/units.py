"""Numbers as people read them, where the judge says them too."""


def bytes_words(count: float) -> str:
    """Binary units, three digits: `1.50 MiB`."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        count /= 1024
        if abs(count) < 1023.5 or unit == "PiB":
            break
    return f"{count:.{2 if abs(count) < 9.995 else 1 if abs(count) < 99.95 else 0}f} {unit}"
