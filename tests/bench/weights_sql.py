"""Text-to-SQL of the examples, graded by execution: its questions, databases, prompts, grader.

The example's agent is a graph of LangGraph, which this environment lacks; its path through the
calls is written here once more: write, execute, check, and rewrite at most twice. The check after
the last rewrite, which changes nothing, is left out.
"""

import json
import random
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from weights_agents import EXAMPLES, Agent, Asked, Problem, Task

sys.path += [str(EXAMPLES), str(EXAMPLES / "text_to_sql")]

from shared.small_model import train
from text_to_sql import task as example
from text_to_sql.database import schema, shown
from text_to_sql.grade import execution
from text_to_sql.prompts import CHECK, REWRITE, WRITE

TURNS = 3


def make_base(folder: Path) -> None:
    """Write the databases, and train the example's first model beside them."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    example.prepare(folder.parent)
    train(example.recipe(folder.parent), 0, folder)


def tasks(base: Path, seed: int, logged: int, new: int) -> tuple[list[Task], list[Task]]:
    """Draw questions to learn from, and others of kinds and values that learning never sees."""
    lines = example.tasks(base.parent)
    random.Random(seed).shuffle(lines)  # noqa: S311 - sampling, not cryptography
    of = {
        split: [
            Task(line["id"], partial(agent, line))
            for line in lines
            if line["metadata"]["split"] == split
        ]
        for split in ("train", "heldout")
    }
    return of["train"][:logged], of["heldout"][:new]


def agent(line: Mapping[str, Any]) -> Agent:
    """Write a query, and rewrite it while the model's check finds it wrong."""
    database, question = line["database"], line["question"]
    tables = schema(database)
    query = (yield _asked("write_query", WRITE.format(schema=tables), question)).strip()
    for _ in range(TURNS - 1):
        seen = (question, query, shown(database, query))
        verdict = yield _asked("check_query", CHECK, *seen)
        if "wrong" not in verdict:
            break
        query = (yield _asked("rewrite_query", REWRITE.format(schema=tables), *seen)).strip()
    expected = json.dumps(line["expected"])
    rollout = pl.DataFrame({"rollout_id": [""], "output": [query], "expected": [expected]})
    return float(execution(rollout)["value"][0])


def _asked(agent: str, system: str, *parts: str) -> Asked:
    user = {"role": "user", "content": "\n".join(parts)}
    return Asked([{"role": "system", "content": system}, user], agent=agent)


PROBLEM = Problem(
    "sql", "Text-to-SQL, graded by execution", make_base, tasks, 120, learners=example.LEARNERS
)
