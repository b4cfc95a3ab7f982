"""Compiles what benchmarks/frontier.py would, and nothing else: no GPU is used, so it can run beside other work.

    nice -n 19 python benchmarks/frontier_builds.py TREES [--until FILE]

Builds lie in the judge's cache, where the evaluations find them. With `PKB_REAL_TORCH_HEADERS=1` they are made with torch's own
headers, 100 CPU s each. It ends by itself, or soon after a file FILE has appeared.
"""

import argparse
import os
import queue
import sys
import time
from collections import Counter, deque
from pathlib import Path

from frontier import part_of, parts_of, planned

from pkb.judge.service.client import JudgeClient
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.platforms.registry import pick
from pkb.types.case import AUTO, Case

LOOK_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", type=Path, nargs="+", help="folders of candidates")
    parser.add_argument("--builders", type=int, default=max(1, len(os.sched_getaffinity(0)) - 4))
    parser.add_argument("--only", default="", help="problems by id, such as 1,2,13")
    parser.add_argument("--platform", default=AUTO)
    parser.add_argument("--until", type=Path, help="a file that ends it")
    options = parser.parse_args()
    only = {int(number) for number in filter(None, options.only.split(","))}
    like = Case("", pick(options.platform).name, 4, "paper", AUTO)
    work = part_of(planned(parts_of(["standard"], options.trees), like, {}), "words", only)
    events: queue.Queue[JudgeEvent] = queue.Queue()
    client = JudgeClient(events.put)
    waiting, building, said = deque(work.tasks), 0, Counter[str]()
    began = time.monotonic()
    try:
        while (waiting or building) and not (options.until and options.until.exists()):
            while waiting and building < options.builders:
                key = waiting.popleft()
                file = work.files[key]
                case = work.tasks[key].case
                client.send(JudgeOrder(id=key, kind="build", source=file.source, filename=file.filename, case=case))
                building += 1
            try:
                event = events.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if event.is_last:
                building -= 1
                said[event.document.verdict if event.document else event.what] += 1
                print(
                    f"[{time.monotonic() - began:6.1f} s] {said.total()}/{len(work.tasks)} {dict(said)}",
                    file=sys.stderr,
                )
    finally:
        client.close()


if __name__ == "__main__":
    main()
