"""Tool executions: what spans record of them, joined with what the messages say.

A bare SDK's spans never show an execution: the result is only in the next call's input. The tool
spans of frameworks often lack the tool call's id. So both are read, and joined by id, else by name
and order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_lightning.collector.records import LlmCall, Message, ToolCall

Part = dict[str, Any]


@dataclass(slots=True)
class Request:
    """A tool call that a model asked for, and the response that a later call's input shows."""

    asker: LlmCall | None
    """None if it was not recorded: only the history of a later call shows the request."""
    shown: LlmCall
    part: Part
    response: Part | None = None
    joined: bool = False


def join_tools(executions: Iterable[ToolCall], calls: Sequence[LlmCall]) -> list[ToolCall]:
    """Return the tool executions of one rollout, each once.

    Args:
        executions: What its tool spans recorded.
        calls: Its model calls, in order.

    Returns:
        The executions. A request that was never answered and has no span was not executed.
    """
    requests = read_requests(calls)
    rows = []
    for execution in sorted(executions, key=lambda tool: (tool.start_ns or 0, tool.span_id or "")):
        request = _asked_by(execution, requests)
        rows.append(_filled(execution, request) if request else execution)
    return [*rows, *(_from_messages(one) for one in requests if one.response and not one.joined)]


def read_requests(calls: Sequence[LlmCall]) -> list[Request]:
    """Return every tool call that the calls asked for, in order, with its response if one came."""
    ledger = _Ledger()
    for call in calls:
        ledger.read_input(call)
        ledger.read_output(call)
        ledger.previous = call
    return list(ledger.known.values())


@dataclass(slots=True)
class _Ledger:
    """The requests of a rollout so far, by tool call id and which use of that id it is."""

    known: dict[tuple[str, int], Request] = field(default_factory=dict)
    previous: LlmCall | None = None
    uses: Counter[str] = field(default_factory=Counter)

    def read_input(self, call: LlmCall) -> None:
        """Read a history: requests that no output showed, and the responses."""
        self.uses = Counter()
        history = call.input_messages or []
        fresh = len(history) - _tail(history)
        waiting = self._unanswered()
        spoken = any(message["role"] == "assistant" for message in history)
        for position, message in enumerate(history):
            if message["role"] == "assistant":
                recent = position >= fresh
                replayed = [self._replayed(part, call, recent) for part in _calls_in(message)]
                waiting = [request for request in replayed if request is not None]
            for response in _responses_in(message):
                if not self._answer(response, waiting) and not spoken:
                    self._note(response, call)

    def read_output(self, call: LlmCall) -> None:
        for message in call.output_messages or []:
            for part in _calls_in(message):
                self.known.setdefault(self._next_use(part), Request(call, call, part))

    def _next_use(self, part: Part) -> tuple[str, int]:
        call_id = part.get("id") or ""
        self.uses[call_id] += 1
        return call_id, self.uses[call_id]

    def _replayed(self, part: Part, call: LlmCall, recent: bool) -> Request | None:  # noqa: FBT001
        """Return the request that a history repeats.

        One that no output showed counts if a call of ours came before, or if its responses are
        what this call was made for. Else it is an example, or another rollout's.
        """
        use = self._next_use(part)
        if use not in self.known and (recent or self.previous is not None):
            self.known[use] = Request(self.previous, call, part)
        return self.known.get(use)

    def _unanswered(self) -> list[Request]:
        """Return the open requests: a provider that keeps the history gets responses alone."""
        return [request for request in self.known.values() if request.response is None]

    @staticmethod
    def _answer(response: Part, waiting: list[Request]) -> bool:
        """Give a response to the request that waits for it; return whether one did."""
        call_id = response.get("id")
        same = [request for request in waiting if request.part.get("id") == call_id]
        free = [request for request in waiting if request.response is None]
        for request in (same or free)[:1]:
            request.response = request.response or response
            waiting.remove(request)
            return True
        return False

    def _note(self, response: Part, call: LlmCall) -> None:
        """Note an execution of which only the response was sent: the provider keeps the rest."""
        part = {"type": "tool_call", "id": response.get("id")}
        self.known[self._next_use(part)] = Request(self.previous, call, part, response)


def _tail(history: Sequence[Message]) -> int:
    """Return how many messages the newest tool responses and the turn that asked for them are."""
    length = 0
    for message in reversed(history):
        if message["role"] != "tool":
            return length + 1 if length else 0
        length += 1
    return length


def _calls_in(message: Message) -> Iterator[Part]:
    return (part for part in message["parts"] if part["type"] == "tool_call")


def _responses_in(message: Message) -> Iterator[Part]:
    return (part for part in message["parts"] if part["type"] == "tool_call_response")


def _asked_by(execution: ToolCall, requests: Iterable[Request]) -> Request | None:
    """Return the request that an execution answers: by id, else the latest that fits, in order."""
    free = [request for request in requests if not request.joined]
    named = [
        r for r in free if execution.tool_call_id and r.part.get("id") == execution.tool_call_id
    ]
    if named:
        return named[0]
    before = [r for r in free if _start(r) <= (execution.start_ns or 0)]
    same_name = [r for r in before if r.part.get("name") == execution.name]
    same_call = [r for r in same_name if r.part.get("arguments") == execution.arguments]
    wrapped = [r for r in before if _wraps(execution, r.part)]
    for fitting in (same_call, same_name, wrapped):
        if fitting:
            latest = fitting[-1].asker
            return next(request for request in fitting if request.asker is latest)
    return None


def _start(request: Request) -> int:
    return (request.asker.start_ns if request.asker else 0) or 0


def _wraps(execution: ToolCall, part: Part) -> bool:
    """Tell whether a decorated dispatcher was called with this tool's name among its arguments."""
    given = execution.arguments
    if not isinstance(given, dict):
        return False
    values = [*given.values(), *(given.get("args") or [])]
    return part.get("name") in [value for value in values if isinstance(value, str)]


def _filled(execution: ToolCall, request: Request) -> ToolCall:
    """Complete a span's row by what the messages say; a dispatcher's gets the tool's own name."""
    request.joined = True
    part = request.part
    if execution.name != part.get("name") or not isinstance(execution.arguments, dict):
        execution.name = part.get("name") or execution.name
        execution.arguments = part.get("arguments", execution.arguments)
    execution.tool_call_id = execution.tool_call_id or part.get("id")
    execution.llm_span_id = request.asker.span_id if request.asker else None
    if request.response is not None:
        execution.source = "both"
        if execution.result is None:
            execution.result = request.response.get("response")
    return execution


def _from_messages(request: Request) -> ToolCall:
    part = request.part
    return ToolCall(
        name=part.get("name"),
        trace_id=(request.asker or request.shown).trace_id,
        llm_span_id=request.asker.span_id if request.asker else None,
        tool_call_id=part.get("id"),
        arguments=part.get("arguments"),
        result=(request.response or {}).get("response"),
        source="messages",
    )
