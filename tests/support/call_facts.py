"""Judge one derived call against the call that the provider served, fact by fact.

A fact that we give and that differs is wrong. One that we do not give is missed if the spans of
that call carry it, else it was not on the wire.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from otel_lightning.collector.derive.rows import LlmCall
from support.captures import Capture
from support.wire import Wire, on_wire, opened, wire_of, wire_of_all

VERDICTS = ("right", "wrong", "missed", "not on the wire")
FINISH = {
    **dict.fromkeys(("stop", "completed", "endturn"), "stop"),
    **dict.fromkeys(("toolcalls", "tooluse"), "tool_calls"),
    **dict.fromkeys(("length", "incomplete", "maxtokens"), "length"),
    **dict.fromkeys(("contentfilter", "contentfiltered"), "content_filter"),
}
"""The finish reasons by their letters: packages write `tool_use`, `tool-use` and `toolUse`."""
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
    if len(given) > len(expected):  # something is there twice
        return "wrong"
    if any(key.endswith(".messages") and cut(leaf) for key, leaf in wire):
        return "not on the wire"  # a limit on the length of attributes took it
    named = [one for one in expected if one not in given and id_sent(one, wire)]
    absent = [atom for one in named for atom in lacking(one, given)]
    return "missed" if any(on_wire(wire, atom) for atom in absent) else "not on the wire"


def id_sent(fact: Any, wire: list[tuple[str, Any]]) -> bool:
    """Return whether a tool call's id was sent: equal arguments may be another call's."""
    return not isinstance(fact, tuple) or len(fact) < 3 or on_wire(wire, fact[0])


def cut(leaf: Any) -> bool:
    return isinstance(leaf, str) and leaf[:1] == "[" and opened(leaf) is None


def partly(given: Any, whole: Any) -> bool:
    """Return whether a fact is a part of a whole one: None where it is left out, text cut short."""
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
    all_texts = [
        ({"input": "user", "developer": "system"}.get(one["role"], one["role"]), one.get(field))
        for one in messages
    ]
    texts = [
        (role, (text or "").replace("[image]", "")) for role, text in all_texts if role != "tool"
    ]
    return neighbours_joined(texts)


def neighbours_joined(texts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join what one role says in a row, as a framework may do after its span was written."""
    turns: list[tuple[str, str]] = []
    for role, text in ((role, text.strip()) for role, text in texts if text.strip()):
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
    return [(part["id"], as_text(part.get("response"))) for part in responses]


def as_text(value: Any) -> str | None:
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
        for name, (own, true_values) in pairs.items():
            if own or true_values:
                yield Fact(f"{side} {name}", list_verdict(own, true_values, wire), true_values, own)
    yield from tool_facts(call, truth, wire)


def tool_facts(call: LlmCall, truth: dict[str, Any], wire: Wire) -> Iterator[Fact]:
    """Judge the tools that were offered: their names, and what each of them is said to be."""
    names = [tool["name"] for tool in truth["tools"] if "name" in tool]
    own_names = [tool["name"] for tool in call.tool_definitions or []]
    if names:
        sent = {leaf for key, leaf in wire if TOOL_KEY.search(key) and isinstance(leaf, str)}
        carried = bool(sent & (set(names) - set(own_names)))
        comparable = None if set(own_names) < set(names) else own_names
        yield Fact("tools", verdict(comparable, names, carried=carried), names, own_names)
    given = {tool["name"]: tool for tool in call.tool_definitions or []}
    # The span of an execution may describe its tool, too: that defines none.
    defined = [(key, leaf) for key, leaf in wire if TOOL_KEY.search(key)]
    for true in truth["tools"]:
        for part in ("description", "parameters"):
            if true.get(part) and true.get("name") in given:
                described = given[true["name"]].get(part)
                judged = verdict(described, true[part], carried=on_wire(defined, true[part]))
                if (
                    judged == "wrong"
                    and part == "parameters"
                    and described.items() <= true[part].items()
                ):
                    judged = "not on the wire"  # what a client adds to a schema
                yield Fact(f"tool {part}", judged, true[part], described)


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
            normalized = finish if name == "finish_reason" else (lambda leaf: leaf)
            given = getattr(call, name)
            if name.endswith("model") and given:
                given = given.removeprefix("openai/")  # how a router names a provider's model
            carried = any(
                normalized(leaf) == true and re.search(SENT_AS.get(name, ""), key)
                for key, leaf in wire
            )
            judged = verdict(given, true, carried=carried)
            if judged == "wrong" and not carried and stated(wire, name, given):
                judged = "not on the wire"
            yield Fact(name, judged, true, given)
    yield Fact("error", *error_verdict(call, truth))


def stated(wire: list[tuple[str, Any]], name: str, given: Any) -> bool:
    """Return whether the instrumentation itself states a wrong name, under the conventions' key."""
    return (f".gen_ai.{name.replace('_', '.', 1)}", given) in wire


SERVERS_ERRORS = {
    400: {"BadRequestError", "invalid_request_error", "400"},
    408: {"APITimeoutError", "timeout"},  # the client waited no longer
    429: {"RateLimitError", "rate_limit_error", "429"},
    500: {"InternalServerError", "server_error", "500"},
}
"""How the servers' errors are called: by OpenAI's SDK, in the answer's body, by HTTP."""


def error_type_verdict(call: LlmCall, true: dict[str, Any], capture: Capture) -> Fact:
    """Judge the name of an error: one of the server's, or of the exception the agent caught."""
    caught = capture.truth["notes"].get("caught", "")
    names = SERVERS_ERRORS[true["status"]] | {true["type"], *([caught] if caught else ())}
    given = call.error_type or ""
    is_named = given in names or (caught and given.endswith(caught))
    sent = any(isinstance(leaf, str) and leaf in names for _, leaf in wire_of(call, capture))
    if given in {"", "_OTHER"} and not is_named:
        judged = "missed" if sent else "not on the wire"
    else:
        judged = "right" if is_named or stated_error(call, capture) else "wrong"
    return Fact("error type", judged, names, call.error_type)


def stated_error(call: LlmCall, capture: Capture) -> bool:
    """Return whether the instrumentation itself names the error so: a wrapper's own exception."""
    keys = (".error.type", ".exception.type")
    return any(
        key.endswith(keys) and str(leaf).endswith(call.error_type or "\0")
        for key, leaf in wire_of(call, capture)
    )


def session_fact(call: LlmCall, capture: Capture) -> Fact:
    true, given = capture.truth["session_id"], call.conversation_id
    carried = on_wire(wire_of_all(capture), true)
    return Fact("session", verdict(given, true, carried=carried), true, given)


def error_verdict(call: LlmCall, truth: dict[str, Any]) -> tuple[str, Any, Any]:
    is_equal = bool(call.error_type) == bool(truth["error"])
    return "right" if is_equal else "wrong", truth["error"], call.error_type


def true_finish(truth: dict[str, Any]) -> str | None:
    if truth["error"]:
        return "error"
    if not truth["finish_reasons"]:
        return None
    reason = finish(truth["finish_reasons"][0])
    asks = any(message.get("tool_calls") for message in truth["output_messages"])
    return "tool_calls" if asks and reason == "stop" else reason


def finish(raw: Any) -> str | None:
    """Return the canonical form of a finish reason in any spelling."""
    return FINISH.get(re.sub("[^a-z]", "", raw.lower())) if isinstance(raw, str) else None


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
                leaf in (true[name], str(true[name])) and re.search(key, leaf_key, re.IGNORECASE)
                for leaf_key, leaf in wire
                if not isinstance(leaf, bool)
            )
            yield Fact(ours, verdict(given, true[name], carried=carried), true[name], given)
