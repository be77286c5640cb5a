"""Judge the rows derived from a capture against its truth, fact by fact.

A fact that we give and that differs is wrong. One that we do not give is missed if the spans of
that call carry it, else it was not on the wire.
"""

import ast
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from captures import Capture

from otel_lightning.collector.derive import derive
from otel_lightning.collector.records import Derived, LlmCall

VERDICTS = ("right", "wrong", "missed", "not on the wire")
FINISH = {
    "stop": "stop",
    "completed": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "length": "length",
    "incomplete": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}
TOOL_KEY = re.compile(r"tools|functions|definitions|json_schema")
SENT_AS = {"finish_reason": "finish|stop_reason"}
COUNTS = {
    "input_tokens": ("input_tokens", r"(prompt|input).*token|token.*(prompt|input)"),
    "output_tokens": ("output_tokens", r"(completion|output).*token|token.*(completion|output)"),
    "cached_input_tokens": ("cached_input_tokens", r"cache"),
    "reasoning_output_tokens": ("reasoning_tokens", r"reasoning"),
}


class Fact(NamedTuple):
    """One fact of the truth, what we say of it, and our verdict."""

    name: str
    verdict: str
    expected: Any
    given: Any


# What the wire carries about one call.


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value inside, with its key; text that holds JSON or Python is looked into."""
    yield key, value
    if isinstance(value, str):
        inner = opened(value)
        if inner is not None:
            yield from leaves(inner, key)
    elif isinstance(value, dict):
        for name, below in value.items():
            yield from leaves(below, f"{key}.{name}")
    elif isinstance(value, list):
        for below in value:
            yield from leaves(below, key)


def opened(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    if text[:1] in "[{":
        with contextlib.suppress(ValueError, SyntaxError):
            return ast.literal_eval(text)
    return None


def wire_of(call: LlmCall, capture: Capture) -> list[tuple[str, Any]]:
    """Return all that the call's spans, their children and their logs carry."""
    ids = {call.span_id, *call.merged_span_ids}
    spans = [span for span in capture.spans if {span.span_id, span.parent_span_id} & ids]
    carried: list[Any] = [span.attributes for span in spans]
    carried += [event.attributes for span in spans for event in span.events]
    carried += [{**log.attributes, "body": log.body} for log in capture.logs if log.span_id in ids]
    return [leaf for attributes in carried for leaf in leaves(attributes)]


def on_wire(wire: list[tuple[str, Any]], value: Any) -> bool:
    if isinstance(value, str):
        return any(isinstance(leaf, str) and value in leaf for _, leaf in wire)
    spelled_out = json.dumps(value)
    return any(leaf == value or (isinstance(leaf, str) and spelled_out in leaf) for _, leaf in wire)


# The facts of one call.


def verdict(given: Any, expected: Any, *, carried: bool) -> str:
    if given == expected:
        return "right"
    if given is not None:
        return "wrong"
    return "missed" if carried else "not on the wire"


def list_verdict(given: list[Any], expected: list[Any], wire: list[tuple[str, Any]]) -> str:
    """Judge a list of facts, some of which may not have been sent."""
    if given == expected:
        return "right"
    if any(not any(partly(one, whole) for whole in expected) for one in given):
        return "wrong"
    if any(key.endswith(".messages") and cut(leaf) for key, leaf in wire):
        return "not on the wire"  # a limit on the length of attributes took it
    named = [one for one in expected if one not in given and id_sent(one, wire)]
    absent = [atom for one in named for atom in lacking(one, given)]
    return "missed" if any(on_wire(wire, atom) for atom in absent) else "not on the wire"


def id_sent(fact: Any, wire: list[tuple[str, Any]]) -> bool:
    """Tell whether a tool call's id was sent: equal arguments may be another call's."""
    return not isinstance(fact, tuple) or len(fact) < 3 or on_wire(wire, fact[0])


def cut(leaf: Any) -> bool:
    return isinstance(leaf, str) and leaf[:1] == "[" and opened(leaf) is None


def partly(given: Any, whole: Any) -> bool:
    """Tell whether a fact is a part of a whole one: None for what was left out, text cut short."""
    if isinstance(given, tuple) and isinstance(whole, tuple):
        return len(given) == len(whole) and all(map(partly, given, whole))
    if isinstance(given, str) and isinstance(whole, str):
        return whole.startswith(given)
    return given is None or given == whole


def lacking(expected: Any, given: list[Any]) -> list[Any]:
    """Return what an expected fact says that the closest given one does not.

    Short texts, and names, which stand in tool definitions too, cannot be told from chance. A
    tool call was sent only with its arguments: its id stands in its response too.
    """
    closest = next((one for one in given if partly(one, expected)), None)
    values = expected if isinstance(expected, tuple) else (expected,)
    had = closest if isinstance(closest, tuple) else (closest,) * len(values)
    if len(values) == 3:
        return [json.loads(values[2])] if had[2] is None and values[2] != "{}" else []
    absent = [value for value, ours in zip(values, had, strict=True) if value != ours]
    return [value for value in absent if isinstance(value, str) and len(value) > 9]


def texts_of(messages: list[dict[str, Any]], kind: str = "text") -> list[tuple[str, str]]:
    joined = [
        (
            message["role"],
            "".join(part["content"] for part in message["parts"] if part["type"] == kind),
        )
        for message in messages
    ]
    return neighbours_joined(joined)


def true_texts(messages: list[dict[str, Any]], field: str = "content") -> list[tuple[str, str]]:
    said = [
        ({"input": "user", "developer": "system"}.get(one["role"], one["role"]), one.get(field))
        for one in messages
    ]
    told = [(role, (text or "").replace("[image]", "")) for role, text in said if role != "tool"]
    return neighbours_joined(told)


def neighbours_joined(said: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join what one role says in a row, as a framework may do after its span was written."""
    turns: list[tuple[str, str]] = []
    for role, text in ((role, text.strip()) for role, text in said if text.strip()):
        if turns and turns[-1][0] == role:
            turns[-1] = (role, f"{turns[-1][1]}\n{text}")
        else:
            turns.append((role, text))
    return turns


def calls_of(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    parts = [part for message in messages for part in message["parts"]]
    return [
        (part["id"], part["name"], json.dumps(part["arguments"]) if "arguments" in part else None)
        for part in parts
        if part["type"] == "tool_call"
    ]


def true_calls(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    calls = [call for message in messages for call in message.get("tool_calls") or []]
    return [(call["id"], call["name"], json.dumps(json.loads(call["arguments"]))) for call in calls]


def own_ids(given: list[Any], expected: list[Any], wire: list[Any]) -> list[Any]:
    """Leave out the ids of tool calls whose true ids were not sent with this call."""
    sent = {call[0] for call in expected if on_wire(wire, call[0])}
    return given if sent else [(None, *call[1:]) for call in given]


def results_of(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    parts = [part for message in messages for part in message["parts"]]
    responses = [part for part in parts if part["type"] == "tool_call_response"]
    return [(part["id"], spelled(part.get("response"))) for part in responses]


def spelled(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def message_facts(call: LlmCall, truth: dict[str, Any], wire: list[Any]) -> Iterator[Fact]:
    sides = (
        ("input", call.input_messages or [], truth["input_messages"]),
        ("output", call.output_messages or [], truth["output_messages"]),
    )
    for side, given, true in sides:
        results = [
            (one.get("tool_call_id"), one["content"]) for one in true if one["role"] == "tool"
        ]
        pairs = {
            "texts": (texts_of(given), true_texts(true)),
            "tool calls": (calls_of(given), true_calls(true)),
            "tool results": (results_of(given), results),
        }
        if side == "output":
            pairs["reasoning"] = (
                texts_of(given, "reasoning"),
                true_texts(true, "reasoning"),
            )
        pairs["tool calls"] = (own_ids(*pairs["tool calls"], wire), pairs["tool calls"][1])
        for name, (ours, theirs) in pairs.items():
            if ours or theirs:
                yield Fact(f"{side} {name}", list_verdict(ours, theirs, wire), theirs, ours)
    names = [tool["name"] for tool in truth["tools"] if "name" in tool]
    ours = [tool["name"] for tool in call.tool_definitions or []]
    if names:
        sent = {leaf for key, leaf in wire if TOOL_KEY.search(key) and isinstance(leaf, str)}
        carried = bool(sent & (set(names) - set(ours)))
        known = None if set(ours) < set(names) else ours
        yield Fact("tools", verdict(known, names, carried=carried), names, ours)


def scalar_facts(call: LlmCall, truth: dict[str, Any], wire: list[Any]) -> Iterator[Fact]:
    expected = {
        "request_model": truth["model_requested"],
        "response_model": truth["model_returned"],
        "response_id": truth["response_id"],
        "finish_reason": true_finish(truth),
        "prompt_token_ids": truth["prompt_token_ids"],
        "completion_token_ids": truth["completion_token_ids"],
        "completion_logprobs": truth["completion_logprobs"],
    }
    for name, true in expected.items():
        if true is not None:
            raw = (truth["finish_reasons"] or [None])[0] if name == "finish_reason" else true
            given = getattr(call, name)
            if name.endswith("model") and given:
                given = given.removeprefix("openai/")  # how a router names a provider's model
            carried = any(
                leaf == raw and re.search(SENT_AS.get(name, ""), key) for key, leaf in wire
            )
            judged = verdict(given, true, carried=carried)
            if judged == "wrong" and not carried and stated(wire, name, given):
                judged = "not on the wire"
            yield Fact(name, judged, true, given)
    yield Fact("error", *error_verdict(call, truth))


def stated(wire: list[tuple[str, Any]], name: str, given: Any) -> bool:
    """Tell whether the instrumentation itself states a wrong name, under the conventions' key."""
    return (f".gen_ai.{name.replace('_', '.', 1)}", given) in wire


def error_verdict(call: LlmCall, truth: dict[str, Any]) -> tuple[str, Any, Any]:
    same = bool(call.error_type) == bool(truth["error"])
    return "right" if same else "wrong", truth["error"], call.error_type


def true_finish(truth: dict[str, Any]) -> str | None:
    if truth["error"]:
        return "error"
    reason = next(iter(truth["finish_reasons"]), None)
    asks = any(message.get("tool_calls") for message in truth["output_messages"])
    return "tool_calls" if asks and reason == "completed" else FINISH.get(reason or "")


def usage_facts(call: LlmCall, truth: dict[str, Any], wire: list[Any]) -> Iterator[Fact]:
    if not truth["usage"]:
        return
    true = dict(truth["usage"])
    if truth["api"] == "anthropic.messages":  # its input_tokens leave out the cached ones
        true["input_tokens"] += true.get("cached_input_tokens") or 0
    for name, (ours, key) in COUNTS.items():
        given = getattr(call, ours)
        if true.get(name) and (given is not None or truth.get("usage_sent", True)):
            carried = any(
                leaf in (true[name], str(true[name])) and re.search(key, leaf_key)
                for leaf_key, leaf in wire
                if not isinstance(leaf, bool)
            )
            yield Fact(ours, verdict(given, true[name], carried=carried), true[name], given)


# The calls of one capture.


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


def execution_facts(derived: Derived, capture: Capture) -> Iterator[Fact]:
    """Judge the tool executions: name, arguments and, unless it failed, the result."""
    rows = [(row.name, row.arguments, spelled(row.result)) for row in derived.tool_calls]
    sent = [leaf for span in capture.spans for leaf in leaves(span.attributes)]
    for true in capture.truth["tool_executions"]:
        failed = true["error"] is not None
        wanted = (true["name"], true["arguments"], spelled(true["result"]))
        row = next(
            (row for row in rows if row[: 2 if failed else 3] == wanted[: 2 if failed else 3]), None
        )
        if row is not None:
            rows.remove(row)
            yield Fact("execution", "right", wanted, row)
            continue
        outline = next((row for row in rows if all(map(partly, row, wanted))), None)
        if outline is not None:
            rows.remove(outline)
        known = outline is not None and outline[2] is not None
        carried = not known and on_wire(sent, wanted[2] or "\0") and len(wanted[2] or "") > 9
        yield Fact("execution", "missed" if carried else "not on the wire", wanted, outline)
    ours = {true["name"] for true in capture.truth["tool_executions"]}
    offered = {tool.get("name") for call in capture.truth["llm_calls"] for tool in call["tools"]}
    for row in rows:
        if row[0] in ours or row[0] not in offered:  # a framework's own tools are not logged
            yield Fact("execution", "wrong", None, row)


def facts(capture: Capture) -> Iterator[Fact]:
    derived = derive(capture.spans, capture.logs)
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
    for call in derived.llm_calls:
        if id(call) not in used:
            yield Fact("call", "wrong", None, call.span_id)
    yield from execution_facts(derived, capture)
