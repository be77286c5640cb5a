"""Executions are joined to requests as a plain second implementation joins them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from otel_lightning.collector.derive.passes.tools.waiting_requests import Request, WaitingRequests
from otel_lightning.collector.derive.rows import LlmCall, ToolCall

NAMES = st.sampled_from(["search", "order", "args", "Sear ch"])
ARGUMENTS = st.sampled_from(
    [None, {}, {"q": 1, "r": 2}, {"r": 2, "q": 1}, "search", {"tool": "search"},
     {"args": ["order", "search"]}, {"tool": "nobody", "other": "args"}]
)  # fmt: skip
IDS = st.sampled_from([None, "", "a", "b"])
TIMES = st.sampled_from([None, 1, 2, 3, 4])


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    """Draw the requests of up to five calls, in any order of time, each with some in parallel."""
    times = draw(st.lists(TIMES, max_size=5, unique_by=lambda at: at or 0))
    made = []
    for at in times:
        requester = None if at is None and draw(st.booleans()) else call(at)
        for name, arguments, call_id in draw(
            st.lists(st.tuples(NAMES, ARGUMENTS, IDS), min_size=1, max_size=3)
        ):
            part = {"name": name, "arguments": arguments, "id": call_id}
            made.append(Request(requester, requester or call(5), part))
    return made


@st.composite
def executions(draw: st.DrawFn) -> list[ToolCall]:
    drawn = draw(st.lists(st.tuples(TIMES, NAMES, ARGUMENTS, IDS), max_size=8))
    ordered = sorted(drawn, key=lambda one: one[0] or 0)
    return [
        ToolCall(name, "t", start_ns=at, arguments=arguments, tool_call_id=call_id)
        for at, name, arguments, call_id in ordered
    ]


def call(at: int | None) -> LlmCall:
    return LlmCall("t", str(at), None, at, None, "semconv")


def start(request: Request) -> int:
    return (request.requester.start_ns if request.requester else 0) or 0


def plainly(some: Sequence[Request], execution: ToolCall) -> Request | None:
    """Find the request of an execution by looking at all of them, again for each rule."""
    free = [one for one in some if not one.is_joined]
    for one in free:
        if execution.tool_call_id and one.part["id"] == execution.tool_call_id:
            return one
    now = execution.start_ns or 0
    before, tied = ([one for one in free if test(start(one))] for test in (now.__gt__, now.__eq__))
    return best(before, execution) or best(tied, execution)


def best(begun: Sequence[Request], execution: ToolCall) -> Request | None:
    """Return the best match among the requests of calls that had started."""
    named = [one for one in begun if one.part["name"] == execution.name]
    alike = [one for one in named if one.part["arguments"] == execution.arguments]
    inside = [
        found
        for name in texts(execution.arguments)
        if (found := latest([one for one in begun if one.part["name"] == name]))
    ]
    spelled = [
        one for one in begun if one.part["name"] != execution.name and allowed(one, execution)
    ]
    same = [one for one in spelled if one.part["arguments"] == execution.arguments]
    of_name = latest(alike) or latest(named) or latest(same) or latest(spelled)
    return of_name or max(inside, key=start, default=None)


def allowed(request: Request, execution: ToolCall) -> bool:
    """Return whether the names differ in capitals and in spaces alone."""
    names = request.part["name"], str(execution.name)
    return len({name.lower().replace(" ", "") for name in names}) == 1


def latest(some: Sequence[Request]) -> Request | None:
    """Return the first of the requests that the latest call made."""
    when = max(map(start, some), default=None)
    return next((one for one in some if start(one) == when), None)


def texts(arguments: Any) -> list[str]:
    if not isinstance(arguments, dict):
        return []
    listed = arguments.get("args", [])
    return [one for one in (*arguments.values(), *listed) if isinstance(one, str)]


@examples(400)
@given(requests(), executions())
def test_each_execution_gets_the_request_that_a_plain_search_finds(
    some: list[Request], executed: list[ToolCall]
) -> None:
    waiting = WaitingRequests(some)
    for execution in executed:
        found = waiting.take(execution)
        assert found is plainly(some, execution)
        if found:
            found.is_joined = True
