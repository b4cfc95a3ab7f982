"""The two sides of an evaluation: what each gets, and what each must not reach."""

import os
import secrets
from pathlib import Path

from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewSpec
from pkb.judge.crew.limits import UNLIMITED, Limits
from pkb.judge.stages import artifacts
from pkb.kit import kittens, slim
from pkb.kit.nvls import FORCED as FORCED_NVLS
from pkb.kit.nvshmem import heap
from pkb.kit.options import DEBUG_BUILDS
from pkb.platforms.base import EMULATED_CUDA, Platform, PlatformFacts
from pkb.types.job import Job
from pkb.types.protocol.settings import CandidateOptions, OracleOptions


def oracle_crew(job: Job, platform: Platform, ranks: int) -> Crew:
    """The trusted side. Its secret is made here and never sent anywhere else."""
    folder = job.problems_folder
    options = OracleOptions(secrets.token_hex(32), str(folder.resolve()) if folder else None)
    own = {"PKB_BUILD_CACHE": str(artifacts.own_kernels())}
    return Crew(
        CrewSpec(options, ranks, extra_environment=own, timed=job.is_timed), platform, Limits(memory_bytes=UNLIMITED)
    )


def candidate_crew(job: Job, platform: Platform, ranks: int, *, build: Path, backend: str, case_bytes: int = 0) -> Crew:
    """The judged side: it gets limits, isolation, its own file and what was built from it, and nothing else. `case_bytes` is
    the size of a rank's arguments, the most that it will get: NVSHMEM's heap is sized by it."""
    if platform.device == "cuda":
        artifacts.give_own_kernels(build)
    limits = Limits(memory_bytes=job.memory_limit_bytes or platform.memory_limit_bytes())
    options = CandidateOptions(
        readable=(str(job.candidate.resolve()), str(build), *map(str, platform.readable())),
        writable=tuple(map(str, platform.writable())),
        max_file_bytes=limits.file_bytes,
        collective_timeout_s=job.call_limit_s + job.build_limit_s,
    )
    spec = CrewSpec(
        options,
        ranks,
        preload_triton=backend == "triton",
        timed=job.is_timed,
        extra_environment={"PKB_BUILD_CACHE": str(build)}
        | ({heap.CASE_BYTES: str(case_bytes)} if case_bytes else {})
        | build_environment(platform.facts())
        | platform.candidate_environment(ranks),
    )
    return Crew(spec, platform, limits)


def build_environment(facts: PlatformFacts) -> dict[str, str]:
    """What to build for, known before any rank has a CUDA context; the same for the build and for the ranks."""
    asked = (slim.SWITCH, kittens.VARIABLE, DEBUG_BUILDS, FORCED_NVLS)
    chosen = {name: os.environ[name] for name in asked if name in os.environ}
    if EMULATED_CUDA in facts.capabilities:
        chosen["PKB_EMULATE_CUDA"] = "1"
    if facts.nccl_home:
        chosen["NCCL_HOME"] = facts.nccl_home
    return chosen | ({"PKB_CUDA_ARCH": facts.architecture} if facts.architecture else {})
