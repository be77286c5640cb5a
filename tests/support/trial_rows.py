"""What the tables of a store say about a run, beside what its truth says."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.rows import Derived
from otel_lightning.collector.store import open_store
from support.frameworks import Framework
from support.provider.script import CITY, TASK_OF

CALLS = """
SELECT input_messages, error_type IS NOT NULL AS failed, rollout_id FROM llm_calls
"""
TOOLS = """
SELECT name, arguments, result, error_type IS NOT NULL OR coalesce(told_error, FALSE) AS failed
FROM tool_calls
"""


class Tool(NamedTuple):
    """One execution of a tool. The result of a failed one is the framework's own text."""

    name: str
    city: str
    result: str | None
    failed: bool


class Rows(NamedTuple):
    """The facts of a run that the tables have, or that the truth has."""

    calls: int
    failed: int
    tools: list[Tool]
    rollouts: list[list[str | None]]
    """The tasks of each rollout's calls, one for each call: no two tasks are in one rollout."""


def _rows(calls: Iterable[tuple[Any, str | None, bool]], tools: Iterable[Tool]) -> Rows:
    grouped: dict[Any, list[str | None]] = defaultdict(list)
    listed = list(calls)
    for group, task, _ in listed:
        grouped[group].append(task)
    failed = sum(1 for *_, failed in listed if failed)
    return Rows(len(listed), failed, sorted(tools), sorted(grouped.values(), key=str))


def of_truth(truth: dict[str, Any], framework: Framework) -> Rows:
    """Return what happened, without what the framework's packages do not record."""
    calls = [
        (call["task"], call["task"], call["error"] is not None)
        for call in truth["llm_calls"]
        if call["task"] not in framework.unseen_calls
    ]
    tools = [
        Tool(one["name"], one["arguments"]["city"], one["result"], one["error"] is not None)
        for one in truth["tool_executions"]
        if one["arguments"]["city"] not in framework.unseen_tools
    ]
    return _rows(calls, tools)


def _task(messages: str | None) -> str | None:
    """Return the task that the messages of a call are about: that of the first city in them."""
    match = CITY.search(messages or "")
    return TASK_OF[match[0]] if match else None


def of_store(store: Path) -> Rows:
    """Return what the tables of a store say."""
    with open_store(store) as opened:
        calls = opened.query(CALLS).to_pylist()
        tools = opened.query(TOOLS).to_pylist()
    return _rows(
        [(row["rollout_id"], _task(row["input_messages"]), row["failed"]) for row in calls],
        [_tool(**row) for row in tools],
    )


def of_derived(derived: Derived) -> Rows:
    """Return what derived rows say."""
    calls = [
        (call.rollout_id, _task(json.dumps(unpack(call).input_messages)), bool(call.error_type))
        for call in derived.llm_calls
    ]
    tools = [
        _tool(
            tool.name or "",
            json.dumps(tool.arguments),
            json.dumps(tool.result),
            failed=bool(tool.error_type or tool.told_error),
        )
        for tool in derived.tool_calls
    ]
    return _rows(calls, tools)


def _tool(name: str, arguments: str | None, result: str | None, *, failed: bool) -> Tool:
    value = json.loads(result) if result and not failed else None
    return Tool(name, (json.loads(arguments or "{}") or {}).get("city", ""), value, failed)
