"""How many lines of Python the engine had at a commit and has now, with later features counted separately.

    python tools/size_since.py 0976422

`NEW` lists, by feature, the files that serve only a feature added after 0976422. Everything else counts as the old scope,
including what was added to old files. Problems are left out, since they may grow.
"""

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGINE = "src/pkb/"
NEW: Mapping[str, tuple[str, ...]] = {
    "CUDA candidates run on a CPU": ("kit/emulated/", "rank/emulate/cuda/", "rank/emulate/uneven_all_to_all.py"),
    "races are proven from recorded calls": (
        "kit/emulated/analyse.py", "rank/emulate/races/", "rank/emulate/recorder.py", "rank/recording.py", "types/race.py",
        "types/race_words.py", "judge/stages/race_proof.py", "judge/stages/race_analyser.py", "report/race_picture.py",
        "judge/stages/weak_execution.py", "candidates/polling.py",
    ),
    "NCCL's device API, NVSHMEM, CuTe DSL and ParallelKittens": (
        "kit/nccl_device/", "kit/nvshmem/", "kit/kittens.py", "kit/foreign_memory.py", "candidates/libraries.py",
        "candidates/paths/cute.py", "generate/examples/cute/", "generate/examples/nccl-device/", "generate/examples/nvshmem/",
    ),
    "times count through the judge's window": ("rank/window/", "rank/contexts.py", "judge/crew/company.py"),
    "builds run in the sandbox, options are those of a list": (
        "rank/isolation/build_warden.py", "rank/isolation/gate.py", "candidates/walled_build.py", "kit/options.py",
        "kit/recipes.py", "kit/messages.py", "judge/stages/artifacts.py", "candidates/build_records.py",
    ),
    "messages between judge and rank are typed and bounded (dicts before)": ("types/protocol/",),
    "a side is bounded by a cgroup, stopped while the other is measured, and not waited for long": (
        "judge/crew/cgroup.py", "judge/crew/patience.py", "judge/crew/stopping.py",
    ),
    "torch extensions build in seconds": ("kit/slim.py", "kit/torch_facts.py", "candidates/torch_adaptor.py"),
    "sides are forked from a process that has torch": ("rank/template.py", "judge/crew/warm.py"),
    "baselines beside references, versions of the suite": (
        "judge/stages/baseline.py", "judge/timing/other.py", "rank/comparison/stock.py", "types/stock.py", "report/against.py",
        "cli/against_option.py",
    ),
    "lint: communication with fewer bits": ("rank/comparison/changed_wire.py",),
    "the published protocol beside ours": (
        "cluster/protocol.py", "cli/protocol.py", "cluster/winners.py", "analysis/lost.py", "cli/score_plans.py",
        "report/frontier.py", "analysis/bare_verdicts.py", "types/old_names.py", "types/torch_versions.py",
    ),
    "archives of other machines": (
        "analysis/machine_archive.py", "analysis/machine_checks.py", "analysis/machine_records.py",
        "analysis/machine_tables.py", "cli/records.py",
    ),
    "the report's own pictures and conversations": (
        "report/charts.py", "report/svg.py", "report/roof_data.py", "report/timeline.py", "analysis/conversation.py",
        "cli/runs_transcript.py",
    ),
    "one GPU works out of the box: NCCL, conditions, doctor": (
        "platforms/nccl.py", "platforms/conditions.py", "cli/doctor_node.py", "platforms/short_folder.py",
    ),
    "compiler logs in lines of the candidate": ("candidates/compiler_log.py", "candidates/source_lines.py"),
    "`pkb demo`": ("cli/demo.py", "cli/demo_candidates/"),
    "kit for Triton and NVLS": ("kit/triton_kit.py", "kit/nvls.py"),
}  # fmt: skip


def function_of(path: str) -> str | None:
    """The new function that a file of the engine is for, by the longest entry that names it; None: it is of the old scope."""
    named = [(len(entry), name) for name, entries in NEW.items() for entry in entries if path.startswith(entry)]
    return max(named)[1] if named else None


def folder_totals(sizes: Iterable[tuple[str, int]]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for path, count in sizes:
        totals[path.partition("/")[0] if "/" in path else "."] += count
    return totals


def sizes_at(commit: str) -> dict[str, int]:
    """A line of `git grep -c` is COMMIT:PATH:LINES; an empty file has none."""
    command = ["git", "grep", "-c", "", commit, "--", f"{ENGINE}*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return _without_problems({path: int(count) for _, path, count in (line.rsplit(":", 2) for line in listed)})


def sizes_now() -> dict[str, int]:
    found = (ROOT / ENGINE).rglob("*.py")
    return _without_problems({path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in found})


def _without_problems(sizes: Mapping[str, int]) -> dict[str, int]:
    inside = {path.removeprefix(ENGINE): count for path, count in sizes.items()}
    return {path: count for path, count in inside.items() if not path.startswith("problems/")}


def main(commit: str) -> int:
    before, now = folder_totals(sizes_at(commit).items()), sizes_now()
    by_function: defaultdict[str | None, dict[str, int]] = defaultdict(dict)
    for path, count in now.items():
        by_function[function_of(path)][path] = count
    old = folder_totals(by_function.pop(None, {}).items())
    new = folder_totals((path, count) for files in by_function.values() for path, count in files.items())
    print(f"| folder | at {commit} | same scope now | change | new functions |\n|---|---|---|---|---|")
    for folder in sorted(before | old | new):
        print(f"| {folder} | {before[folder]} | {old[folder]} | {old[folder] - before[folder]:+} | {new[folder]} |")
    sums = [sum(each.values()) for each in (before, old, new)]
    print(f"| **all** | {sums[0]} | {sums[1]} | {sums[1] - sums[0]:+} ({sums[1] / sums[0] - 1:+.1%}) | {sums[2]} |\n")
    print("| new function | lines | files |\n|---|---|---|")
    for name, files in sorted(by_function.items(), key=lambda item: -sum(item[1].values())):
        print(f"| {name} | {sum(files.values())} | {len(files)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "0976422"))
