"""Lists the measurements that the pages of docs still lack, and takes the most important first, in one resumable command.

    python benchmarks/owed.py [--dry-run]                                           what is owed, step by step
    python benchmarks/owed.py --out out/owed --budget 560 [--lanes 4] [--only judged,timed] [--archive out/owed.tar.gz]
                              [--trees FOLDER...]                                   published kernels (docs/frontier.md) first
    python benchmarks/owed.py --merge out/owed                                      into docs/records, and the pages again

A measurement is missing ("owed") if there is no record of it for the present kernel, kit, problem and judge. Each step
(`owed_steps.py`) asks the program that keeps those records. No command is begun after the budget, and a running one is
interrupted at its end. Every record is written to `--out` at once, so the same command continues where it stopped. `--archive`
packs the records every minute and after each command into one file; another machine continues from it once it is unpacked
into `--out`. `--merge` takes a folder or such an archive. `--dry-run` prints cases and commands. Estimated seconds come from
the records, if there are any. `--budget 0` only prepares the folder, for a machine without a repository: earlier kernels
come from git. The exit status is 3 as long as something is left, 0 when nothing is, and 4 if two programs in a row have given
up because nothing gets a verdict any more: what is left of this machine's time is better spent on another.
"""

import argparse
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import frontier_passes
from kernel_records import MACHINE_FAILS, Row, add_row, alone_in, read_rows, taken_at, write_whole
from kernel_trials import ARCHIVED
from owed_steps import BEFORE, LEFT, ROOT, STEPS, Command, Owed, Place, program, slower, texts_of_before
from showcase import POINTS

from pkb.platforms.registry import check_name, resolve
from pkb.problems.base import KNOWN_SIZES
from pkb.problems.registry import default_registry
from pkb.types.case import AUTO
from pkb.types.errors import UserError
from pkb.types.processes import die_with_parent

DOCS = ROOT / "docs"
OF_THE_PAGES = "virtual"
PLATFORM = "platform.txt"
LEAST_S = 20.0
"""Nothing is begun with less."""
LAST_S = 25.0
"""Before the end a command begins nothing more, and one that knows how long its works take has ended them."""
GRACE_S = 15.0
"""From an interrupt to the end."""
PACK_S = 60.0
"""The most that is lost if nobody is asked before the machine goes."""
LEAST_BUDGET_S = LEAST_S + LAST_S + GRACE_S
INTERRUPTED = 2
"""An exit status, in pytest's words."""
MOST_GIVEN_UP = 2
"""Programs in a row that find the machine to fail: one may fail by what it judges."""
CUT_OFF = (tarfile.TarError, EOFError, zlib.error)


def words_of(owed: Owed) -> str:
    seconds = "seconds not known" if owed.seconds is None else f"about {owed.seconds:.0f} s"
    return f"{len(owed.items):4d} owed, {seconds:17s} for {owed.page}" if owed.items else "   0 owed"


def owed_by(at: Place, name: str) -> Owed:
    """What a step lacks. One that cannot say so costs no other step its time."""
    try:
        return STEPS[name](at)
    except Exception as error:
        traceback.print_exc()
        return Owed("no page", [f"not known, since {error!r}"], [], None)


def prepare(at: Place) -> None:
    """Copies the records to where programs that resume look for them, and, if git is available, the earlier kernels. It may be
    killed at any moment: what is there is whole."""
    if (known := platform_in(at.out) or at.platform) != at.platform:
        sys.exit(f"{at.out} has records of platform {known}: choose another --out for {at.platform}")
    write_whole(at.out / PLATFORM, f"{at.platform}\n")
    for path in (at.records / "backends.jsonl", *(at.records / "references").glob("*.jsonl")):
        copy = at.out / path.relative_to(at.records)
        known_rows, there = read_rows(path), read_rows(copy)
        rows = [*known_rows, *(row for row in there if row not in known_rows)]  # the last of a case counts
        if rows != there:
            copy.parent.mkdir(exist_ok=True)
            write_whole(copy, "".join(json.dumps(row) + "\n" for row in rows))
    try:
        keep_texts_of_before(at)
    except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        print(f"earlier kernels are not at hand: {error}", flush=True)


def keep_texts_of_before(at: Place) -> None:
    for then in slower(at).values() if (ROOT / ".git").exists() else ():
        if then["candidate"]["sha256"] in texts_of_before(at):
            continue
        if (commit := commit_of(then)) is None:
            print(
                f"{then['candidate']['file']} of {taken_at(then)} is in no commit: nothing to compare with", flush=True
            )
            continue
        archive = at.out / BEFORE.replace("*", commit[:12])
        new = archive.with_suffix(".new")
        new.write_bytes(git("archive", commit, *ARCHIVED))
        new.replace(archive)


def platform_in(folder: Path) -> str | None:
    """The platform that everything in this folder was measured on, since not every record names it."""
    return (folder / PLATFORM).read_text().strip() if (folder / PLATFORM).exists() else None


def commit_of(row: Row) -> str | None:
    """The commit whose text of a kernel was judged: the last one before the verdict, because of the kit at that time, or the
    one that introduced the text if it was judged before it was committed."""
    path = f"solutions/{row['candidate']['file']}"
    then = git("rev-list", "-1", f"--before={taken_at(row)}", "HEAD")
    for commit in (then + git("log", "--format=%H", "HEAD", "--", path)).decode().split():
        there = git("ls-tree", "--name-only", commit, path)  # a commit may have removed it
        if there and hashlib.sha256(git("show", f"{commit}:{path}")).hexdigest() == row["candidate"]["sha256"]:
            return commit
    return None


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout


def run(words: list[str], left_s: float, meanwhile: Callable[[], None] = lambda: None) -> int:
    """Returns the exit status of a command. It is interrupted at the end of its time, and killed if it does not end.
    `meanwhile` is called every minute."""
    end_at = time.monotonic() + left_s
    asked = [word.replace(LEFT, f"{max(0.0, left_s - LAST_S):.0f}") for word in words]
    # A group of its own, for the interrupt; and it does not outlive this process.
    process = subprocess.Popen(asked, cwd=ROOT, process_group=0, preexec_fn=partial(die_with_parent, os.getpid()))
    try:
        while (still_s := end_at - time.monotonic()) > 0:
            try:
                return process.wait(timeout=min(PACK_S, still_s))
            except subprocess.TimeoutExpired:
                meanwhile()
        print("out of time: interrupted", flush=True)
        return end(process)
    except BaseException:  # whoever is interrupted or fails leaves nobody behind that holds the GPU
        end(process)
        raise


def end(process: subprocess.Popen[bytes]) -> int:
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:  # also if somebody is impatient
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def pack(at: Place, archive: Path | None) -> None:
    """Writes the archive completely, or leaves the old one."""
    if archive is None:
        return
    new = archive.with_suffix(".new")
    with tarfile.open(new, "w:gz") as tar:
        for path in (at.out / PLATFORM, *sorted([*at.out.rglob("*.jsonl"), *at.out.rglob("*.json")])):
            data = path.read_bytes()  # whoever writes there may be at it
            member = tarfile.TarInfo(path.relative_to(at.out).as_posix())
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    new.replace(archive)


def work(at: Place, names: list[str], budget_s: float, archive: Path | None) -> bool:
    """Returns whether every step is done."""
    stop_at = time.monotonic() + budget_s - GRACE_S
    prepare(at)
    if archive is not None:  # told now if that cannot be
        archive.parent.mkdir(parents=True, exist_ok=True)
    pack(at, archive)
    begun, given_up = [], 0

    def pack_again() -> None:
        """A copy that cannot be made, on a full disk for example, must not end what is measured."""
        try:
            pack(at, archive)
        except OSError as error:
            print(f"the archive is not up to date: {error}", flush=True)

    for name in names:
        if stop_at - time.monotonic() < LEAST_S + LAST_S:
            break
        begun.append(name)
        owed = owed_by(at, name)
        for command in owed.commands if owed.items else ():
            if (left_s := stop_at - time.monotonic()) < max(LEAST_S + LAST_S, command.least_s):
                continue
            print(f"== {name}, {left_s:.0f} s left: {' '.join(map(short, command.words[1:]))}", flush=True)
            status = INTERRUPTED
            try:
                status = run(command.words, left_s, pack_again)
            finally:
                keep_what_it_found(command, status)
                pack_again()
            given_up = given_up + 1 if status == MACHINE_FAILS else 0
            if given_up == MOST_GIVEN_UP:
                print("nothing on this machine gets a verdict: give it back, and go on with another", flush=True)
                sys.exit(MACHINE_FAILS)
    left = {name: owed_by(at, name) for name in begun}
    for name, owed in left.items():
        print(f"{name:12s} {words_of(owed)}", flush=True)
    print("".join(f"{name:12s} not begun\n" for name in names[len(begun) :]), end="")
    return begun == names and not any(owed.items for owed in left.values())


def keep_what_it_found(command: Command, status: int) -> None:
    """What cannot be read, such as the report of a command that was killed while it wrote, costs no other command its time."""
    try:
        command.after(status)
    except Exception:
        traceback.print_exc()


def short(word: str) -> str:
    return word.removeprefix(f"{ROOT}/")


def merge(source: Path) -> None:
    """Adds the new records to docs/records and makes the pages again. Reviewing and committing them is left to people."""
    records = DOCS / "records"
    with tempfile.TemporaryDirectory(prefix="pkb-owed-") as name:
        folder = source
        if source.is_file():
            folder = Path(name)
            unpack(source, folder)
        if (platform := platform_in(folder)) != OF_THE_PAGES:
            sys.exit(
                f"{source} is of platform {platform or 'unknown'} (its file {PLATFORM}): the pages are of {OF_THE_PAGES}"
            )
        stems = ["backends", "before", "tests", "window-control", "window-noise"]
        files = [*(folder / f"{stem}.jsonl" for stem in stems), *(folder / "references").glob("*.jsonl")]
        for path in [*files, *folder.glob("again-*.jsonl")]:
            append(path, records / path.relative_to(folder))
        append(folder / "truths" / "references.jsonl", records / "references" / "references.jsonl")
        frontier_passes.merge(folder / "frontier", records)
        hardware, kernels = records / "h200-virtual.toml", records / "kernels.jsonl"
        new = [path for stem in ("judged", "timed") if (path := folder / f"{stem}.jsonl").exists()]
        pages = [
            program(
                "kernel_report.py", kernels, *new, "--keep", kernels, "--hardware", hardware, "--page", DOCS / "kernels.md"
            ),
            program("backends.py", "--out", records / "backends.jsonl", "--page", DOCS / "backends.md", "--seconds", 0),
            program("reference_report.py", records / "references", "--hardware", hardware, "--out", DOCS),
            program("frontier_page.py"),
        ]  # fmt: skip
        for number in POINTS:
            known, out = records / f"showcase-{number}.jsonl", folder / f"showcase-{number}"
            asked = ("--platform", OF_THE_PAGES, "--budget", 0, "--out", out, "--known", known, "--keep", known)
            pages.append(program("showcase.py", number, *asked, "--page", DOCS / f"showcase-{number}.md"))
        for words in pages:
            print(f"== {' '.join(map(short, words[1:]))}", flush=True)
            status = subprocess.run(words, cwd=ROOT, check=False, timeout=600).returncode
            if status:  # a showcase says so too of sizes that are missing
                print(f"{short(words[1])} ended with status {status}: look at what it says", flush=True)
    print(
        "by hand: docs/power.md (window-control, window-noise), docs/platforms.md (tests, adversaries), what pages say above"
    )


def unpack(archive: Path, folder: Path) -> None:
    """Of an archive that was cut off on its way, the files that came whole."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if file := tar.extractfile(member):
                    file.read()
                tar.extract(member, folder, filter="data")
    except CUT_OFF as error:
        whole = sum(path.is_file() for path in folder.rglob("*"))
        print(f"{archive} is cut off ({error}): only {whole} files came whole", flush=True)


def append(path: Path, kept: Path) -> None:
    """Adds rows that are not there yet, without samples where the same case was judged repeatedly."""
    there, brief = read_rows(kept), path.stem.startswith("again-")
    for row in read_rows(path):
        if (row := without_samples(row) if brief else row) not in there:
            add_row(kept, row)


def without_samples(row: Row) -> Row:
    many = ("_samples_us", "_walls_us", "sample_kinds")
    timing = {name: value for name, value in (row["timing"] or {}).items() if not name.endswith(many)}
    return row | {"timing": timing or None}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--platform", default=OF_THE_PAGES)
    options.add_argument("--out", type=Path, default=ROOT / "out" / "owed")
    options.add_argument(
        "--budget", type=float, help=f"measure, and end after so many seconds, {LEAST_BUDGET_S:.0f} or more"
    )
    options.add_argument("--lanes", type=int, default=4, help="of kernels that are judged, not timed, at a time")
    options.add_argument("--only", help="steps, in this order")
    options.add_argument(
        "--trees", type=Path, nargs="+", default=[], help="of published kernels, for the step frontier"
    )
    options.add_argument("--archive", type=Path, help="pack what is there into this file after each command")
    options.add_argument("--merge", type=Path, metavar="OUT", help="a folder or an archive")
    options.add_argument("--dry-run", action="store_true", help="also print the cases and the commands")
    options.add_argument(
        "--records", type=Path, default=DOCS / "records", help="what is known, in place of docs/records"
    )
    options.add_argument("--ranks", type=numbers, default=(4, 8, 2))
    options.add_argument("--sizes", default="tiny,odd,paper,real")
    options.add_argument("--kernels", type=numbers, default=(), help="of these problems")
    args = options.parse_args()
    if args.merge is not None:
        merge(args.merge)
        return 0
    names = args.only.split(",") if args.only else [name for name in STEPS if name != "frontier" or args.trees]
    if unknown := set(names) - set(STEPS):
        options.error(f"steps are {', '.join(STEPS)}, not {', '.join(sorted(unknown))}")
    if missing := [tree for tree in args.trees if not tree.is_dir()] or ["none"] * (
        "frontier" in names and not args.trees
    ):
        options.error(f"--trees: no such folder of kernels: {', '.join(map(str, missing))}")
    sizes, only = tuple(args.sizes.split(",")), frozenset(args.kernels)
    ids = {problem.id for problem in default_registry().all()}
    if nothing := [*(set(sizes) - set(KNOWN_SIZES)), *map(str, only - ids)]:  # of them nothing would ever be owed
        options.error(f"neither a size nor a problem: {', '.join(nothing)}")
    try:
        check_name(platform := args.platform)
        if platform == AUTO or (args.budget and not args.dry_run):
            platform = resolve(platform)
    except UserError as error:
        options.error(str(error))
    trees = tuple(tree.resolve() for tree in args.trees)
    at = Place(platform, args.out.resolve(), args.records.resolve(), args.ranks, sizes, only, args.lanes, trees)
    if args.budget is not None and not args.dry_run:
        if 0 < args.budget < LEAST_BUDGET_S:
            options.error(f"nothing is begun with a --budget below {LEAST_BUDGET_S:.0f} s; 0 prepares the folder")
        for number in (signal.SIGTERM, signal.SIGINT):  # a shell's background ignores the latter, and so would children
            signal.signal(number, signal.default_int_handler)
        try:
            at.out.mkdir(parents=True, exist_ok=True)
            with alone_in(at.out):
                return 0 if work(at, names, args.budget, args.archive) else 3
        except KeyboardInterrupt:
            print("interrupted; the same command goes on", flush=True)
            return 130
    for name in names:
        owed = owed_by(at, name)
        print(f"{name:12s} {words_of(owed)}", flush=True)
        if args.dry_run and owed.items:
            print(f"    {'; '.join(owed.items)}")
            print("".join(f"    $ {' '.join(map(short, command.words[1:]))}\n" for command in owed.commands))
    return 0


if __name__ == "__main__":
    sys.exit(main())
