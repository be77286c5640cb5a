"""Judge the rows derived from a capture against its truth: its calls, and what its tools did."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, LlmCall, ToolCall
from support.call_facts import (
    VERDICTS,
    Fact,
    as_text,
    error_type_verdict,
    message_facts,
    partly,
    scalar_facts,
    session_fact,
    texts_of,
    true_texts,
    usage_facts,
)
from support.captures import Capture, load
from support.wire import leaves, on_wire, wire_of

__all__ = ["VERDICTS", "Fact", "derived_of", "facts", "facts_of"]


def logical_calls(truth: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls that an agent made: an SDK's retries of one call are one, the last."""
    calls: list[dict[str, Any]] = []
    for call in truth["llm_calls"]:
        if calls and call["http_retry"]:
            calls.pop()
        calls.append(call)
    return calls


def pair(derived: Derived, truth: dict[str, Any]) -> list[tuple[dict[str, Any], LlmCall | None]]:
    """Pair each true call with ours: by response id, else by what it was asked, else in order."""
    free = list(derived.llm_calls)
    pairs: dict[int, LlmCall] = {}
    tests = (
        lambda ours, true: ours.response_id and ours.response_id == true["response_id"],
        lambda ours, true: (
            texts_of(ours.input_messages or []) == true_texts(true["input_messages"])
            and not ours.response_id
        ),
        lambda ours, true: not ours.response_id and bool(ours.error_type) == bool(true["error"]),
    )
    for test in tests:
        for position, true in enumerate(logical_calls(truth)):
            ours = next((call for call in free if test(call, true)), None)
            if position not in pairs and ours is not None:
                pairs[position] = ours
                free.remove(ours)
    return [(true, pairs.get(position)) for position, true in enumerate(logical_calls(truth))]


def row_of(tool: ToolCall) -> tuple[str | None, Any, str | None]:
    return tool.name, tool.arguments, as_text(tool.result)


def execution_error(
    derived: Derived, row: tuple[Any, ...], true: dict[str, Any], capture: Capture
) -> tuple[str, Any, Any]:
    """Judge whether an execution failed; a framework may hand the error on as a plain result.

    The error of a model call elsewhere in the recording says nothing about the tool.
    """
    error, message = (
        next(t.error_type for t in derived.tool_calls if row_of(t) == row),
        true["error"],
    )
    if bool(error) == bool(message):
        return "right", message, error
    if error:
        return "wrong", message, error
    calls = {one for call in derived.llm_calls for one in (call.span_id, *call.merged_span_ids)}
    other_leaves = (list(leaves(s.attributes)) for s in capture.spans if s.span_id not in calls)
    failed = any(
        key.endswith(("error.type", "exception.type"))
        for sent in other_leaves
        if any(leaf == true["name"] for _, leaf in sent)
        for key, _ in sent
    )
    return "missed" if failed else "not on the wire", message, error


def execution_facts(derived: Derived, capture: Capture) -> Iterator[Fact]:
    """Judge the tool executions: name, arguments and, unless it failed, the result."""
    rows = [row_of(tool) for tool in derived.tool_calls]
    sent = [leaf for span in capture.spans for leaf in leaves(span.attributes)]
    for true in capture.truth["tool_executions"]:
        failed = true["error"] is not None
        expected = (true["name"], true["arguments"], as_text(true["result"]))
        row = next(
            (row for row in rows if row[: 2 if failed else 3] == expected[: 2 if failed else 3]),
            None,
        )
        if row is not None:
            rows.remove(row)
            yield Fact("execution", "right", expected, row)
            yield Fact("execution error", *execution_error(derived, row, true, capture))
            continue
        outline = next((row for row in rows if all(map(partly, row, expected))), None)
        if outline is not None:
            rows.remove(outline)
        is_known = outline is not None and outline[2] is not None
        carried = not is_known and on_wire(sent, expected[2] or "\0") and len(expected[2] or "") > 9
        yield Fact("execution", "missed" if carried else "not on the wire", expected, outline)
    used_tools = {true["name"] for true in capture.truth["tool_executions"]}
    offered = {tool.get("name") for call in capture.truth["llm_calls"] for tool in call["tools"]}
    for row in rows:
        if row[0] in used_tools or row[0] not in offered:  # a framework's own tools are not logged
            yield Fact("execution", "wrong", None, row)


@cache
def derived_of(truth: Path) -> Derived:
    """Return the rows of a recording, which many tests look at."""
    capture = load(truth)
    return derive(capture.spans, capture.logs)


@cache
def facts_of(truth: Path) -> list[Fact]:
    """Return what is found of a recording."""
    return list(facts(load(truth), derived_of(truth)))


def facts(capture: Capture, derived: Derived | None = None) -> Iterator[Fact]:
    derived = derived or derive(capture.spans, capture.logs)
    yield Fact("reading", "wrong" if derived.unread else "right", {}, derived.unread)
    pairs = pair(derived, capture.truth)
    used = {id(ours) for _, ours in pairs if ours}
    sent = [leaf for span in capture.spans for leaf in leaves(span.attributes)]
    for true, ours in pairs:
        if ours is None:
            carried = true["response_id"] and on_wire(sent, true["response_id"])
            yield Fact(
                "call", "missed" if carried else "not on the wire", true["response_id"], None
            )
            continue
        yield Fact("call", "right", true["response_id"], ours.response_id)
        wire = wire_of(ours, capture)
        yield from message_facts(ours, true, wire)
        yield from scalar_facts(ours, true, wire)
        yield from usage_facts(ours, true, wire)
        if true["error"] and ours.error_type:
            yield error_type_verdict(ours, true["error"], capture)
        if capture.truth["session_id"]:
            yield session_fact(ours, capture)
    for call in derived.llm_calls:
        if id(call) not in used:
            yield Fact("call", "wrong", None, call.span_id)
    yield from execution_facts(derived, capture)
