"""What a person or a model can do about a verdict. Hints follow from the evidence, never from the expected values."""

from typing import Any

from pkb.platforms.registry import traits
from pkb.types.profile import Profile
from pkb.types.verdict import Communication, Verdict

RACE_HINTS = {
    "missing_start_barrier": "a peer's data was read before it was written: wait for every peer (release/acquire at system "
    "scope, or the handle's barrier) between publishing data and reading it",
    "missing_end_barrier": "a rank returned while a peer was still reading its data: add a barrier before the return, or "
    "alternate between two buffers",
    "stale_read": "old contents of a symmetric buffer were taken for new ones: copy the arguments in on every call and let "
    "flags carry an epoch number",
    "missing_synchronisation": "two calls in a row disturb each other: a buffer or signal is reused before all ranks are done "
    "with it, or a result lives in memory that the next call overwrites",
}


def hints_for(verdict: Verdict, evidence: dict[str, Any], *, platform: str, backend: str) -> list[str]:
    hints: list[str] = []
    where = traits(platform)
    mismatch = evidence.get("mismatch")
    pattern = mismatch.pattern if mismatch else ""
    failure = evidence.get("failure")
    if verdict is Verdict.RACE:
        hints.append(RACE_HINTS.get(str(evidence.get("race_kind")), RACE_HINTS["missing_synchronisation"]))
    if verdict is Verdict.DEADLOCK:
        hints.append(
            "every rank must reach the same barriers, signals and collectives the same number of times; look for a branch on "
            "the rank, a signal that is never sent, or a flag compared with the wrong epoch"
        )
        if where.device == "cpu" and backend == "triton":
            hints.append(
                "Triton's interpreter runs the programs of a grid one after another: a program that waits for a later one "
                "of its own grid cannot finish here, and may on a GPU"
            )
        if where.shares_gpu:
            hints.append("each rank has 1/W of the multiprocessors: a grid that spins must fit into them all at once")
            hints.append(
                "a grid that waits for a peer's library kernel can keep that kernel off the GPU (matrix products launch "
                "clusters of blocks): wait in a launch of one warp, then start the grid"
            )
    if verdict is Verdict.WRONG:
        if "own" in pattern and "came back" in pattern:
            hints.append("the result is this rank's own data: nothing arrived from the peers")
        if "constant factor" in pattern:
            hints.append("a constant factor often is a sum counted twice, a missing peer, or a mean in place of a sum")
        if "confined to" in pattern:
            hints.append("only some rows differ: check offsets at shard boundaries and the last partial block")
        if "NaN" in pattern:
            hints.append("NaN: uninitialised or poisoned memory was read, or a buffer was too short")
        if "only" in pattern and mismatch is not None and len(mismatch.ranks) == 1:
            hints.append(
                "one rank differs: check rank-dependent branches, roots other than rank 0, and the ring's ends"
            )
        if mismatch is not None and "should be" in mismatch.what:
            hints.append("dtype, shape and structure must be those of the reference: `pkb show` prints it")
    if verdict is Verdict.REJECTED and failure is not None and failure.kind == "hidden_work":
        hints.append("launch on torch's current stream, or make it wait for your side streams before returning")
    if verdict is Verdict.REJECTED and "arguments in place" in str(evidence.get("detail", "")):
        hints.append("copy the arguments into buffers of your own before changing them")
    if verdict is Verdict.UNSUPPORTED:
        hints.append("run it on a platform that has it: `pkb doctor` lists what this machine offers")
    if verdict is Verdict.CRASH and failure is not None and "limit" in failure.kind:
        hints.append("the limits are on all ranks together; `pkb eval --memory-limit` raises the one on memory")
    if verdict is Verdict.CORRECT:
        match evidence.get("communication"):
            case Communication.LIBRARY:
                hints.append("library collectives moved the data: counted as `library`, apart from custom kernels")
            case Communication.NONE:
                hints.append(
                    "the data came by a way that the judge does not watch (files, IPC handles of its own, ...)"
                )
        hints += _profile_hint(evidence.get("profile"))
    return hints


def _profile_hint(profile: Profile | None) -> list[str]:
    """The one thing that the profile says most clearly, if it says anything."""
    if profile is None or profile.candidate is None or profile.reference is None:
        return []
    own, theirs = profile.candidate, profile.reference
    launched = own.kernels_per_call + own.copies_per_call
    usual = theirs.kernels_per_call + theirs.copies_per_call
    if launched > usual + 2:
        return [
            f"a call issues {launched:.3g} kernels and copies, the reference {usual:.3g}: each costs a launch and a gap; fuse "
            "them, or let one kernel do the copies"
        ]
    matters = min(own.communication_us, own.compute_us) > 0.2 * own.busy_us
    if own.overlap is not None and own.overlap < 0.05 and matters:
        return [
            f"communication ({own.communication_us:.0f} us) and compute ({own.compute_us:.0f} us) run one after the other: cut "
            "the work into pieces and send each while the next is computed, in one kernel or on a second stream"
        ]
    return []
