"""Runs pip for tools/setup.py: says what is downloaded and how far it is, and puts a failure into one line.

Standard library only, and nothing that Python 3.6 cannot parse, as there.
"""

import re
import subprocess
import sys
import time

EVERY_S = 5.0  # between lines where no terminal shows one that changes
UNREACHABLE = re.compile(
    r"NewConnectionError|Failed to establish a new connection|Connection refused|Temporary failure in name resolution"
    r"|Name or service not known|Network is unreachable|ConnectTimeoutError|ReadTimeoutError|timed out|ProxyError"
    r"|Connection reset|RemoteDisconnected|IncompleteRead"
)
UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED|SSLError|certificate verify failed")


class PipFailed(Exception):
    """One line; `final` if nothing else that pip is asked for can succeed either."""

    def __init__(self, words: str, final: bool) -> None:
        super().__init__(words)
        self.final = final


def megabytes(size: float) -> str:
    return "{:.1f} GB".format(size / 1000) if size >= 1000 else "{:.0f} MB".format(size)


def run_pip(command: "list[str]", cwd: str, log: str, say: bool) -> None:
    """Everything that pip prints goes to the log; what a user wants to know of it, to the screen."""
    progress = Progress(say)
    shown = ["--progress-bar", "raw"] if say and knows_raw(command[0]) else ["--progress-bar", "off"]
    lines = []  # type: list[str]
    with open(log, "a", encoding="utf-8") as file:
        file.write("\n$ {}\n".format(" ".join(command)))
        pip = subprocess.Popen(command + shown, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            assert pip.stdout is not None
            for raw in pip.stdout:
                line = raw.decode(errors="replace").rstrip()
                if not progress.saw(line):
                    lines.append(line)
                    file.write(line + "\n")
        except BaseException:
            pip.terminate()
            raise
        finally:
            status = pip.wait()
            progress.end()
    if status:
        raise failure(lines, log)


def knows_raw(python: str) -> bool:
    """pip 24.1 and newer print progress for programs."""
    done = subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.PIPE)
    found = re.search(r"pip (\d+)\.(\d+)", done.stdout.decode())
    return found is not None and tuple(map(int, found.groups())) >= (24, 1)


def failure(lines: "list[str]", log: str) -> PipFailed:
    text = "\n".join(lines)
    errors = [line for line in lines if line.startswith("ERROR:")] or [line for line in lines if line.strip()][-1:]
    if "No space left on device" in text:
        return PipFailed("the disk is full", final=True)
    if UNTRUSTED.search(text):
        return PipFailed(
            "the package index's certificate is not trusted here: point PIP_CERT at the right one", final=True
        )
    if UNREACHABLE.search(text):
        return PipFailed(
            "no network: pip cannot reach its package index; set HTTPS_PROXY or PIP_INDEX_URL if you need them, then the same "
            "command goes on from here (what pip said: {})".format(log),
            final=True,
        )
    words = errors[0] if errors else "pip says nothing"
    return PipFailed("{} (all that pip said: {})".format(words, log), final=False)


class Progress:
    total_mb = 0.0  # of the whole set-up, as far as it is known
    done_mb = 0.0

    def __init__(self, say: bool) -> None:
        self._say = say
        self._terminal = sys.stdout.isatty()
        self._name = ""
        self._last_s = time.time()
        self._open = False

    def saw(self, line: str) -> bool:
        """Was this only about progress?"""
        got = re.match(r"Progress (\d+) of (\d+)", line)
        if got:
            done, total = int(got.group(1)) / 1e6, int(got.group(2)) / 1e6
            words = "{}: {:.0f} of {:.0f} MB".format(self._name, done, total)
            in_all = Progress.done_mb + done
            if Progress.total_mb > in_all:
                words += " ({} of {} in all)".format(megabytes(in_all), megabytes(Progress.total_mb))
            if total >= 1:
                self._show(words, done=done == total)
            if done == total:
                Progress.done_mb += total
            return True
        starts = re.match(r"\s*Downloading (\S+) \(([\d.]+) (kB|MB|GB)\)", line)
        if starts:
            self._name = "-".join(starts.group(1).rsplit("/", 1)[-1].split("-")[:2])
            if starts.group(3) != "kB" and self._say:
                self._print("  downloading {} ({} {})".format(self._name, starts.group(2), starts.group(3)))
            self._last_s = time.time()
        elif line.startswith("Installing collected packages") and self._say:
            count = line.count(",") + 1
            self._print("  installing {}".format("{} packages".format(count) if count > 1 else line.partition(": ")[2]))
        return False

    def _show(self, words: str, done: bool) -> None:
        if not self._say:
            return
        if self._terminal:
            sys.stdout.write("\r    " + words.ljust(60))
            self._open = True
            if done:
                self.end()
        elif time.time() - self._last_s >= EVERY_S:
            print("    " + words)
            self._last_s = time.time()
        sys.stdout.flush()

    def _print(self, words: str) -> None:
        self.end()
        print(words, flush=True)

    def end(self) -> None:
        if self._open:
            print(flush=True)
            self._open = False
