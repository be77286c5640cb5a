"""Tool executions: the spans that record them, joined with the tool calls in the messages.

An SDK without a framework records no span for an execution: the result is only in the next call's
input. The tool spans of frameworks often lack the tool call's id. So both sources are read, and
joined by id or, without an id, by name and order.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.messages import tool_values
from otel_lightning.collector.derive.messages.hosted_tools import CALL, RESPONSE
from otel_lightning.collector.derive.messages.packing import outputs
from otel_lightning.collector.derive.messages.tool_parts import Part
from otel_lightning.collector.derive.passes.rollouts import order
from otel_lightning.collector.derive.passes.waiting_requests import Request, Waiting, canonical
from otel_lightning.collector.derive.rows import LlmCall, Message, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes

RUN_WITHIN_NS = 10_000_000_000
"""A tool span without a tool call id is attributed to a request only if it began within about this
time (10 s) after the requesting call ended."""


def join_tools(executions: Sequence[ToolCall], calls: Sequence[LlmCall]) -> list[ToolCall]:
    """Return the tool executions of one rollout, each once.

    Args:
        executions: The executions that its tool spans recorded, in time order.
        calls: Its model calls, in order.

    Returns:
        The executions. A request without a response and without a span counts as not executed.
    """
    hosted = [tool for call in calls if _has_hosted(call) for tool in _hosted(call)]
    requests = read_requests(calls)
    if not requests:
        return [*executions, *hosted]
    waiting = Waiting(requests)
    rows = []
    for execution in executions:
        request = waiting.take(execution)
        rows.append(_filled(execution, request) if request else execution)
    inferred = (_from_messages(one) for one in requests if one.response and not one.joined)
    return [*rows, *inferred, *hosted]


def _has_hosted(call: LlmCall) -> bool:
    for message in call.output_messages or ():
        for part in message["parts"]:
            if part["type"] == CALL:
                return True
    return False


def _hosted(call: LlmCall) -> Iterator[ToolCall]:
    """Yield the executions of the tools that the provider ran while it answered a call."""
    parts = [part for message in call.output_messages or () for part in message["parts"]]
    responses = {part.get("id"): part[RESPONSE] for part in parts if part["type"] == RESPONSE}
    for part in parts:
        if part["type"] == CALL:
            given, response = part.get(CALL), responses.get(part.get("id"))
            failed = isinstance(response, dict) and response.get("error") is not None
            yield ToolCall(
                name=part.get("name"),
                trace_id=call.trace_id,
                llm_span_id=call.span_id,
                tool_call_id=part.get("id"),
                # `given` is an object such as {"type": "web_search", "arguments": {…}}; an object
                # without "arguments" is kept whole.
                arguments=given.get("arguments", given) if isinstance(given, dict) else given,
                result=_hosted_result(response),
                error_type="_OTHER" if failed else None,
                # The provider reports no times of its tools: they ran during the call.
                start_ns=call.start_ns,
                end_ns=call.end_ns,
                source="messages",
            )


def _hosted_result(response: Any) -> Any:
    """Return the result of a provider's tool: its `response`, its `error`, or the whole value."""
    if not isinstance(response, dict) or response.keys().isdisjoint({"response", "error"}):
        return response
    return response.get("response", response.get("error"))


def asked(call: LlmCall) -> list[str]:
    """Return the keys by which other traces find the tool calls that a call requested.

    A key is the tool call id, or the service, the tool's name, its arguments and one of the two
    intervals of `RUN_WITHIN_NS` in which the tool may have started: that of the call's end and the
    next one.
    """
    marks: list[str] = []
    for message in call.output_messages or ():
        for part in _calls_in(message):
            marks.append(part.get("id") or "")
            ended = (call.end_ns or 0) // RUN_WITHIN_NS
            if part.get("arguments"):
                marks += [_mark(part, call.service_name, time) for time in (ended, ended + 1)]
    return [mark for mark in marks if mark]


def _mark(part: Mapping[str, Any], service: str | None, time: int) -> str:
    return f"{service} {time} {part.get('name')} {canonical(part.get('arguments')).decode()}"


def evidence(
    executions: Iterable[ToolCall], calls: Iterable[LlmCall], nodes: Nodes
) -> list[tuple[str, ToolCall | LlmCall]]:
    """Find evidence that a tool ran for a call in another trace.

    Returns:
        (key, row) pairs. The row is a tool execution whose span has no parent, or a call whose
        input has a tool response without its request. The key is one of those that `asked` returns
        for the requesting call.
    """
    found: list[tuple[str, ToolCall | LlmCall]] = []
    for tool in executions:
        node = nodes[tool.trace_id or "", tool.span_id or ""]
        # A span with a parent belongs to the rollout of its own trace already.
        if not node.parent[1]:
            said = {"name": tool.name, "arguments": tool.arguments}
            time = (tool.start_ns or 0) // RUN_WITHIN_NS
            # Without arguments only the name and the time are left, which concurrent rollouts
            # share: that is no evidence.
            told = _mark(said, node.resource.get("service.name"), time) if tool.arguments else ""
            found.append((tool.tool_call_id or told, tool))
    for call in calls:
        found += [(response, call) for response in call.history.unrequested_ids]
    return [(mark, row) for mark, row in found if mark]


def askers(
    shown: Sequence[tuple[str, ToolCall | LlmCall]], calls: Iterable[LlmCall]
) -> Iterator[tuple[ToolCall | LlmCall, list[LlmCall]]]:
    """Yield each row of `evidence`, with the earlier calls that requested it, in order."""
    by_mark: dict[str, list[LlmCall]] = defaultdict(list)
    for call in sorted(calls, key=order) if shown else ():
        for mark in asked(call):
            by_mark[mark].append(call)
    for mark, row in shown:
        since = row.start_ns or 0
        yield row, [call for call in by_mark.get(mark, ()) if (call.start_ns or 0) < since]


def in_time(tool: ToolCall) -> tuple[int, str, str]:
    """Return the sort key of executions: by start time, then by id."""
    return tool.start_ns or 0, tool.trace_id or "", tool.span_id or ""


def read_requests(calls: Sequence[LlmCall]) -> list[Request]:
    """Return every tool call that the calls requested, in order, with its response if one came."""
    ledger = _Ledger()
    for call in calls:
        ledger.read_input(call)
        ledger.read_output(call)
    return list(ledger.known.values())


@dataclass(slots=True)
class _Ledger:
    """The requests of a rollout so far, by (tool call id, number of the use of that id).

    Some packages use one id, or none, for several tool calls, so the uses are counted from 1.
    """

    known: dict[tuple[str, int], Request] = field(default_factory=dict)
    previous: LlmCall | None = None
    uses: dict[str, int] = field(default_factory=dict)
    earlier: set[tuple[str, int]] = field(default_factory=set)
    """Requests that were in the history before the rollout began, and have an id."""
    asker: LlmCall | None = None
    """The previous call, if it may have asked for a request that its output does not show."""
    has_asker: bool = False
    """Whether `asker` is known: it is found when it is needed."""
    has_nameless: bool = False
    """Whether a request without an id is known."""

    def read_input(self, call: LlmCall) -> None:
        """Read a call's input: requests that no recorded output showed, and tool responses."""
        # An input repeats the history from its first message, so the count starts again. The output
        # continues it, and the next input finds the same numbers.
        self.uses = {}
        history = call.input_messages or []
        # Position of the turn whose tool responses this call was made to send.
        fresh = len(history) - _tail(history)
        # None until the first turn of the assistant: a response before it answers a request of a
        # history that the provider stores.
        waiting: list[Request] | None = None
        repeated = [] if _has_turn(history) else self._answered_without_ids()
        for position, message in enumerate(history):
            parts = message["parts"]
            if message["role"] == "assistant":
                recent = position >= fresh
                waiting = []
                for part in _parts_of(parts, "tool_call"):
                    if (request := self._replayed(part, call, recent)) is not None:
                        waiting.append(request)
            for response in _parts_of(parts, "tool_call_response"):
                if repeated and response == repeated[0]:
                    del repeated[0]
                    continue
                repeated = []
                waiting = self._unanswered() if waiting is None else waiting
                # No request is known for this response. If the input has no turn of the assistant,
                # the provider stores the request, so the execution is recorded without it.
                found = self._answer(response, waiting, call) or self._answer(
                    response, self._lost(response), call
                )
                if not found and not _has_turn(history):
                    self._note(response, call)

    def read_output(self, call: LlmCall) -> None:
        """Read a call's output, which ends what is read of the call."""
        for message in call.output_messages or []:
            for part in _calls_in(message):
                use = self._next_use(part)
                if use not in self.known:
                    self.known[use] = Request(call, call, part)
        self.previous, self.has_asker = call, False

    def _next_use(self, part: Part) -> tuple[str, int]:
        call_id = part.get("id") or ""
        if not call_id:
            self.has_nameless = True
        number = self.uses[call_id] = self.uses.get(call_id, 0) + 1
        return call_id, number

    def _replayed(self, part: Part, call: LlmCall, recent: bool) -> Request | None:  # noqa: FBT001
        """Return the request that a history repeats, or None if it is not one of this rollout.

        A request that no recorded output showed counts if a call of this rollout came before, or if
        it is recent: this call was made to send its responses. Any other request is an example in
        the prompt, or belongs to another rollout.
        """
        use = self._next_use(part)
        if use not in self.known:
            if recent or (self.previous is not None and use not in self.earlier):
                self.known[use] = self._nameless(part) or Request(self._asker(), call, part)
            elif part.get("id"):
                self.earlier.add(use)
        return self.known.get(use)

    def _nameless(self, part: Part) -> Request | None:
        """Return the previous call's request that a history repeats, if its output lost the id.

        It is then known by its id.
        """
        if not self.has_nameless or not part.get("id"):
            return None
        for use, request in self.known.items():
            if not use[0] and request.asker is self.previous and _agree(request.part, part):
                del self.known[use]
                request.part = part
                return request
        return None

    def _asker(self) -> LlmCall | None:
        """Return the requester of a request that no recorded output showed."""
        if not self.has_asker:
            self.asker, self.has_asker = self._possible_asker(), True
        return self.asker

    def _possible_asker(self) -> LlmCall | None:
        """Return the previous call as the requester, or None if its recorded output rules that out.

        The output rules it out if it is complete and did not contain this request. Frameworks add
        tool calls to a history that no model made, for example for a handoff.
        """
        before = self.previous
        if before is None or not (answered := outputs(before)):
            return before
        parts = [part for message in answered for part in _calls_in(message)]
        # The model ended with tool calls, but the instrumentation recorded none of them.
        lost = not parts and before.finish_reason == "tool_calls"
        # Tool calls without ids cannot be compared, so this request may be one of them. With ids it
        # would be known already, from the output.
        return before if lost or not all(part.get("id") for part in parts) else None

    def _unanswered(self) -> list[Request]:
        """Return the requests without a response.

        They matter if the provider stores the history: then a call sends only the tool responses.
        """
        return [request for request in self.known.values() if request.response is None]

    def _answered_without_ids(self) -> list[Part]:
        """Return the responses so far that have no id, in order.

        A history without the turns of the assistant begins with them, as TanStack AI writes it.
        """
        responses = (request.response for request in self.known.values())
        return [one for one in responses if one is not None and not one.get("id")]

    def _lost(self, response: Part) -> list[Request]:
        """Return the known request with a response's id: the history may have lost it."""
        found = self.known.get((response.get("id") or "", 1)) if response.get("id") else None
        return [found] if found else []

    @staticmethod
    def _answer(response: Part, waiting: list[Request], call: LlmCall) -> bool:
        """Assign a response to the request that waits for it; return whether there was one."""
        call_id = response.get("id")
        # `place` has the same id. `free` is the first request without a response, for packages
        # whose requests and responses have different ids, or none.
        place = free = -1
        for at, request in enumerate(waiting):
            if request.part.get("id") == call_id:
                place = at
                break
            if free < 0 and request.response is None:
                free = at
        place = place if place >= 0 else free
        if place < 0 or (place == free and _is_answered(waiting[free], call_id, call)):
            return False
        request = waiting.pop(place)
        if request.response is None:
            # Later inputs repeat the response. The first one that shows it bounds the time of the
            # execution.
            request.response, request.until = response, call.start_ns
        return True

    def _note(self, response: Part, call: LlmCall) -> None:
        """Record an execution known from its response alone: the provider stores the request."""
        part = {"type": "tool_call", "id": response.get("id")}
        self.known[self._next_use(part)] = Request(
            self._asker(), call, part, response, call.start_ns
        )


def _agree(one: Part, other: Part) -> bool:
    """Tell whether two tool calls may be the same one, as far as both are known."""
    pairs = [(one.get(key), other.get(key)) for key in ("name", "arguments")]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _is_answered(request: Request, call_id: str | None, call: LlmCall) -> bool:
    """Tell whether another response of this input has the request's id: this one is not for it."""
    own = request.part.get("id")
    if not own or own == call_id:
        return False
    messages = call.input_messages or ()
    return any(own == part.get("id") for message in messages for part in _responses_in(message))


def _has_turn(history: Sequence[Message]) -> bool:
    return "assistant" in [message["role"] for message in history]


def _tail(history: Sequence[Message]) -> int:
    """Return the number of final messages: the last tool responses and the turn that asked."""
    length = 0
    for message in reversed(history):
        if message["role"] != "tool":
            return length + 1 if length else 0
        length += 1
    return length


def _calls_in(message: Message) -> list[Part]:
    return _parts_of(message["parts"], "tool_call")


def _responses_in(message: Message) -> list[Part]:
    return _parts_of(message["parts"], "tool_call_response")


def _parts_of(parts: list[Part], kind: str) -> list[Part]:
    if len(parts) == 1:  # as most messages have
        return parts if parts[0]["type"] == kind else []
    return [part for part in parts if part["type"] == kind]


def _filled(execution: ToolCall, request: Request) -> ToolCall:
    """Complete a tool span's row from the messages. A dispatcher gets the name of the real tool."""
    request.joined = True
    part = request.part
    named = isinstance(execution.arguments, dict) and not tool_values.is_a_call(execution.arguments)
    # The span's own arguments are kept if they are by name and the span has the tool's name. The
    # span of a decorated function or a dispatcher gets the arguments of the tool call.
    if not named or execution.name != part.get("name"):
        execution.name = part.get("name") or execution.name
        execution.arguments = part.get("arguments", execution.arguments)
    execution.tool_call_id = execution.tool_call_id or part.get("id")
    execution.llm_span_id = request.asker.span_id if request.asker else None
    if request.response is not None:
        execution.source = "both"
        if execution.result is None:
            execution.result = _returned(request)
    return execution


def _returned(request: Request) -> Any:
    """Return a tool's result without the `{"result"}` object that frameworks send to Gemini."""
    value = _told(request)
    if (
        isinstance(value, dict)
        and value.keys() == {"result"}
        and span_rows.is_gemini(request.shown)
    ):
        return value["result"]
    return value


def _told(request: Request) -> Any:
    """Return what the model was told."""
    return tool_values.unquoted(request.response.get("response") if request.response else None)


def _from_messages(request: Request) -> ToolCall:
    """Return an execution known from messages alone: it ran between its two calls."""
    part = request.part
    return ToolCall(
        name=part.get("name"),
        trace_id=(request.asker or request.shown).trace_id,
        llm_span_id=request.asker.span_id if request.asker else None,
        tool_call_id=part.get("id"),
        arguments=part.get("arguments"),
        result=_told(request),
        start_ns=request.asker.end_ns if request.asker else None,
        end_ns=request.until,
        source="messages",
    )
