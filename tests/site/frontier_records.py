"""Made-up records of published kernels, judged by both protocols, as they lie in docs/records."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synthetic import evaluation, stems

from pkb.store import TaskSpec
from pkb.types.case import Case
from pkb.types.verdict import Verdict

COLLECTIONS = ("gpt-9 cuda", "opus-9 cuda", "gemini-9 triton")
OURS = (Verdict.CORRECT, Verdict.REUSED_OUTPUT, Verdict.WRONG, Verdict.RACE)
"""By problem, in turn; by the published protocol the first three are right."""


def write_frontier(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(5)
    for collection in COLLECTIONS:
        for plan in ("standard", "published"):
            path = folder / f"frontier-{collection.replace(' ', '-')}-{plan}.jsonl"
            lines = [json.dumps(_record(dice, collection, plan, number)) for number in range(1, 13)]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _record(dice: random.Random, collection: str, plan: str, number: int) -> Mapping[str, Any]:
    task = TaskSpec(
        collection=collection, case=Case(stems(12)[number - 1], "virtual", 4, "paper", "bf16"), backend="cuda"
    )
    ours = OURS[number % 4]
    verdict = ours if plan == "standard" else Verdict.WRONG if ours is Verdict.RACE else Verdict.CORRECT
    said = evaluation(dice, task, verdict=verdict, skill=2).to_dict() | {"plan": plan}
    said["candidate"] = {**said["candidate"], "sha256": f"{number:064x}"}
    return {"collection": collection, "problem": number, "sample": 0, "evaluation": said}
