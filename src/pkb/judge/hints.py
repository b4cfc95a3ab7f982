"""What a person or a model can do about a verdict. Hints follow from the evidence, never from the expected values."""

from collections.abc import Mapping

from pkb.platforms.registry import traits
from pkb.types.difference import DifferenceKind, Pattern
from pkb.types.profile import Profile
from pkb.types.race_words import finding_title
from pkb.types.torch_versions import is_of_another_torch
from pkb.types.verdict import Communication, Evidence, FailureKind, RaceKind, Verdict

RACE_HINTS: Mapping[RaceKind, str] = {
    RaceKind.MISSING_START_BARRIER: "a peer's data was read before it was written: wait for every peer (release/acquire at "
    "system scope, or the handle's barrier) between publishing data and reading it",
    RaceKind.MISSING_END_BARRIER: "a rank returned while a peer was still reading its data, or writing into its result: "
    "add a barrier before the return, or alternate between two buffers",
    RaceKind.STALE_READ: "data that an earlier call left in a buffer was read as this call's data: copy the arguments in on "
    "every call, wait for every peer between publishing and reading, and let flags carry an epoch number",
    RaceKind.MISSING_SYNCHRONISATION: "two calls in a row disturb each other: a buffer or signal is reused before all ranks "
    "are done with it",
    RaceKind.NO_SYNCHRONISATION: "nothing orders the two accesses: publish with a release at system scope (st.release.sys, "
    "red.release.sys, the handle's barrier) after the one that must come first, and acquire (ld.acquire.sys) before the other; "
    "a wait that may give up orders nothing",
    RaceKind.SCOPE_TOO_NARROW: "a peer is on another GPU: flags between ranks need scope .sys (__threadfence_system, "
    "atomic..._system, cuda::thread_scope_system); .gpu and .cta order nothing there",
    RaceKind.RELAXED: "a relaxed or volatile flag orders nothing but itself: write it by st.release.sys and wait for it by "
    "ld.acquire.sys, or put __threadfence_system() before the store and after the load that has seen it",
    RaceKind.ASYNC_PROXY: "cp.async.bulk and TMA go through the async proxy: fence.proxy.async between them and ordinary "
    "accesses of the same bytes, and wait for the copy's own completion before its result is used",
    RaceKind.READ_ONLY_CACHE: "__ldg, ld.global.nc and const __restrict__ promise that nobody writes these bytes while the "
    "kernel runs: load what peers write by ordinary or volatile loads",
    RaceKind.REUSED_TOO_EARLY: "a peer may still read what is overwritten: add a barrier after the last read (before the "
    "return), or alternate between two buffers so that one barrier lies between two uses of each",
}
PROOF_HINT = (
    "with no GPU, `pkb eval --platform cpu --race-report` records a few calls and shows the two lines and the missing order, "
    "if the candidate runs on an emulated GPU"
)
REUSED_HINT = (
    "the next call overwrites this result, because both live in the same memory: allocate the output in every call "
    "(torch.empty_like, ...), or return a clone of the buffer; buffers that are not returned may be kept"
)
PATTERN_HINTS: Mapping[Pattern, str] = {
    Pattern.RIGHT_WHEN_REPEATED: "the same call was right when it was repeated: most often a peer's data is read before it "
    "is written, and the previous call's data is used instead; "
    "wait for every peer (a barrier) between publishing data and reading it",
    Pattern.TRANSPOSED: "the result is transposed: check the layout of the output and the order of a product's operands",
    Pattern.OWN_INPUT: "the result is this rank's own data: nothing arrived from the peers",
    Pattern.CONSTANT_FACTOR: "a constant factor often means a sum counted twice, a missing peer, or a mean instead of a sum",
    Pattern.SOME_ROWS: "only some rows differ: where they lie together, check offsets at shard boundaries and the last "
    "partial block; where they are scattered, what these values have in common (ties, a scale, a rounding point, a mask)",
    Pattern.NAN: "NaN: uninitialised or poisoned memory was read, or a buffer was too short",
}
FAILURE_HINTS: Mapping[FailureKind, str] = {
    FailureKind.HIDDEN_WORK: "launch on torch's current stream, or make it wait for your side streams before returning",
    FailureKind.CHANGED_ARGUMENTS: "copy the arguments into your own buffers before changing them, and return the result: "
    "changes to an argument are not read",
    FailureKind.LATE_OUTPUT: "a result must be complete when the call returns: join your threads, make the current stream "
    "wait for side streams, and wait for the peers that write into it",
    FailureKind.ALIASED_OUTPUT: "return a newly allocated tensor in this rank's memory: the caller may change the result, and "
    "must not reach an argument or a peer's memory through it",
    FailureKind.MEMORY_LIMIT: "the limits apply to all ranks together; `pkb eval --memory-limit` raises the memory limit",
    FailureKind.TIME_LIMIT: "outside of calls a rank only copies data: look for your own threads that keep its process or "
    "the device busy; `pkb eval --call-limit` raises the total that it may take",
    FailureKind.OUTPUT_LIMIT: "print less: the verdict keeps only a few lines in any case",
    FailureKind.PROCESS_LIMIT: "the limits apply to all ranks together; `pkb eval --memory-limit` raises the memory limit",
}
FAULT_HINTS: Mapping[str, str] = {
    "misaligned address": "an access of n bytes needs an address that is a multiple of n. Rows, shards and slots begin "
    "anywhere at sizes such as `odd`: test the address, not only the length, before a vector access, and use narrower ones at "
    "both ends",
    "illegal memory access": "an index or a pointer leaves what was allocated: check bounds at sizes that the block size does "
    "not divide, offsets by rank, and pointers of peers",
}
"""By the name of a fault on the emulated GPU."""
NOT_PROVEN_HINT = (
    "its recorded calls contain no race: also look for a wait that gives up after a time or a number of polls, and for faults "
    "that depend on values alone, such as rounding that only some calls show, memory that is read before it is written, or "
    "shapes that only some calls have"
)


def hints_for(verdict: Verdict, evidence: Evidence, *, platform: str, backend: str) -> list[str]:
    hints: list[str] = []
    where = traits(platform)
    mismatch, failure = evidence.mismatch, evidence.failure
    if verdict is Verdict.RACE and evidence.race_kind is not None:
        hints.append(RACE_HINTS[evidence.race_kind])
        if where.device != "cpu":
            hints.append(PROOF_HINT)
    if evidence.race_proof is not None and evidence.race_proof.findings:
        first = evidence.race_proof.findings[0]
        if first.kind is not evidence.race_kind:  # it was found wrong, or racy by provocation
            hints += [f"its recorded calls contain a race: {finding_title(first)}", RACE_HINTS[first.kind]]
    elif verdict is Verdict.RACE and evidence.race_proof is not None and not evidence.race_proof.why_not:
        hints.append(NOT_PROVEN_HINT)
    if verdict is Verdict.REUSED_OUTPUT:
        hints.append(REUSED_HINT)
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
            hints.append("each rank has 1/W of the SMs: a grid that spins must fit into them all at once")
            hints.append(
                "a grid that waits for a peer's library kernel can keep that kernel off the GPU (matrix products launch "
                "clusters of blocks): wait in a launch of one warp, then start the grid"
            )
    if verdict is Verdict.WRONG and mismatch is not None:
        hints += [hint for pattern, hint in PATTERN_HINTS.items() if pattern in mismatch.patterns]
        repeated = Pattern.RIGHT_WHEN_REPEATED in mismatch.patterns
        if (
            Pattern.SOME_RANKS in mismatch.patterns
            and len(mismatch.ranks) == 1
            and not (repeated or mismatch.difference is DifferenceKind.BITS)
        ):
            hints.append(
                "one rank differs: check rank-dependent branches, roots other than rank 0, and the ring's ends"
            )
        if mismatch.difference is DifferenceKind.BITS:
            hints.append("add up in the same order on every rank, or let one rank add and the others copy its sum")
        elif mismatch.difference is not DifferenceKind.VALUES:
            hints.append("dtype, shape and structure must be those of the reference: `pkb show` prints it")
    if failure is not None and failure.kind in FAILURE_HINTS:
        hints.append(FAILURE_HINTS[failure.kind])
    if failure is not None and failure.kind is FailureKind.PROCESS_ENDED and failure.name in FAULT_HINTS:
        hints.append(FAULT_HINTS[failure.name])
    if failure is not None and is_of_another_torch(failure.name, failure.message):
        hints.append(
            "written for another version of torch: what is a tensor there (such as a handle's signal_pad_ptrs_dev) is an "
            "address here"
        )
    if verdict is Verdict.UNSUPPORTED:
        hints.append(
            "run it on a platform that has what it needs: `pkb doctor` lists what this machine offers; `pkb check` reads and "
            "builds it here, without running it"
        )
    if verdict.is_timed:
        match evidence.communication:
            case Communication.LIBRARY:
                hints.append("library collectives moved the data: this counts as `library`, not as a custom kernel")
            case Communication.NONE:
                hints.append(
                    "the data moved in a way that the judge does not observe (files, its own IPC handles, ...)"
                )
        hints += _profile_hint(evidence.profile)
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
