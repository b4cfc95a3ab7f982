"""Mutants that change nothing that matters, each with its argument."""

ANNOUNCED = (
    "equivalent: the table is read in `consume` only (what is produced goes to the multicast address), and the block barrier "
    "of `announce` lies between."
)
EQUIVALENT: dict[tuple[str, str], str] = {
    ("03 switch", "pkb_collective.cuh:60 __syncthreads removed"): ANNOUNCED,
}


def argument_for(kernel: str, mutant: str) -> str:
    return EQUIVALENT.get((kernel, mutant), EQUIVALENT.get(("", mutant), ""))
