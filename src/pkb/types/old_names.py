"""Names that problems had in earlier versions of the published list, for files that were written then.

That list had one problem more, so that numbers above 32 were one higher. A name says which problem is meant; only where a name
now belongs to another problem does the number decide.
"""

from collections.abc import Mapping

SINCE_RENAMED: Mapping[tuple[int, str], str] = {
    (11, "gemm_allgather_AT"): "allgather_gemm_AT",
    (12, "gemm_allgather"): "allgather_gemm",  # now the name of 14
    (14, "gemm_allscatter"): "gemm_allgather",
    (18, "rms_norm"): "tp_rms_norm",
}
GONE = frozenset({"fsdp_adamw_sharded"})
"""Problems that the list no longer has."""


def current_name(name: str, number: int | None) -> str:
    """What it is called now; the name itself where it was never changed."""
    renamed = SINCE_RENAMED.get((number, name)) if number is not None else None
    if renamed is None and number is None:
        unambiguous = {old: new for (_, old), new in SINCE_RENAMED.items() if old not in SINCE_RENAMED.values()}
        renamed = unambiguous.get(name)
    return renamed or name


def is_gone(name: str) -> bool:
    return name in GONE
