"""The tool calls that the models of a rollout requested, with their responses."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from otel_lightning.collector.derive.messages.packing import outputs
from otel_lightning.collector.derive.messages.tool_parts import Part
from otel_lightning.collector.derive.rows import LlmCall, Message

Use = tuple[str, int]
"""A tool call id, and the number of its use in a history, from 1. Some packages use one id, or
none, for several tool calls."""


@dataclass(slots=True)
class Request:
    """A tool call that a model requested, and the response that a later call's input has."""

    requester: LlmCall | None
    """The call that requested the tool. None if that call was not recorded."""
    first_call: LlmCall
    """The first call whose output or input has the request."""
    part: Part
    response: Part | None = None
    answered_ns: int | None = None
    """Start time of the first call whose input has the response."""
    is_joined: bool = False
    """Whether a tool span is known to be the execution."""


def read_requests(calls: Sequence[LlmCall]) -> list[Request]:
    """Return every tool call that the calls requested, in order, with its response if one came."""
    requests = _Requests(calls)
    for call in calls:
        requests.read_input(call)
        requests.read_output(call)
    return list(requests.by_use.values())


@dataclass(slots=True)
class _Requests:
    """The requests of a rollout so far."""

    calls: Sequence[LlmCall]
    """All calls of the rollout."""
    offered: Collection[str] | None = None
    """The names of all tools that the models were offered, as `letters`; None if any is unknown."""
    has_offered: bool = False
    """Whether `offered` is determined: that is done when it is needed."""
    made_up: set[Use] = field(default_factory=set)
    """Requests in a history that no model made."""
    by_use: dict[Use, Request] = field(default_factory=dict)
    previous: LlmCall | None = None
    """The call before the one that is read."""
    uses: dict[str, int] = field(default_factory=dict)
    """Number of uses of each tool call id in the history so far."""
    before_rollout: set[Use] = field(default_factory=set)
    """Requests that were in the history before the rollout began, and have an id."""
    hidden_requester: LlmCall | None = None
    """The previous call, if it may have made a request that its output lacks."""
    has_hidden_requester: bool = False
    """Whether `hidden_requester` is determined: that is done when it is needed."""
    has_one_without_id: bool = False
    """Whether any request has no id."""

    def read_input(self, call: LlmCall) -> None:
        """Read a call's input: requests that no recorded output showed, and tool responses."""
        # An input repeats the history from its first message, so the count starts again. The output
        # continues it, and the next input finds the same numbers.
        self.uses = {}
        history = call.input_messages or []
        has_assistant = _has_assistant(history)
        # Position of the turn whose tool responses this call was made to send.
        last_step = len(history) - _length_of_last_step(history)
        # None until the first turn of the assistant: a response before it answers a request of a
        # history that the provider stores.
        waiting: list[Request] | None = None
        repeated = [] if has_assistant else self._answered_without_ids()
        for position, message in enumerate(history):
            parts = message["parts"]
            if message["role"] == "assistant":
                is_recent = position >= last_step
                waiting = []
                for part in _parts_of(parts, "tool_call"):
                    if request := self._repeated_request(part, call, is_recent=is_recent):
                        waiting.append(request)
            for response in _parts_of(parts, "tool_call_response"):
                if repeated and response == repeated[0]:
                    del repeated[0]
                    continue
                repeated = []
                waiting = self._unanswered() if waiting is None else waiting
                is_assigned = self._answer(response, waiting, call) or self._answer(
                    response, self._missing_request(response), call
                )
                # If the input has no turn of the assistant, the provider stores the request, so the
                # execution is recorded without it.
                if not is_assigned and not has_assistant:
                    self._add_from_response(response, call)

    def read_output(self, call: LlmCall) -> None:
        """Read a call's output; call it last for the call."""
        for message in call.output_messages or []:
            for part in _calls_in(message):
                use = self._next_use(part)
                if use not in self.by_use:
                    self.by_use[use] = Request(call, call, part)
        self.previous, self.has_hidden_requester = call, False

    def _next_use(self, part: Part) -> Use:
        call_id = part.get("id") or ""
        number = self.uses.get(call_id, 0) + 1
        if not call_id:
            self.has_one_without_id = True
            # Agents of one rollout have histories of their own, so another one may have the number.
            while (taken := self.by_use.get((call_id, number))) and not _agree(taken.part, part):
                number += 1
        self.uses[call_id] = number
        return call_id, number

    def _repeated_request(self, part: Part, call: LlmCall, *, is_recent: bool) -> Request | None:
        """Return the request that a history repeats, or None if it is not one of this rollout.

        A request that no recorded output showed counts if a call of this rollout came before, or if
        it is recent: this call was made to send its responses. Any other request is an example in
        the prompt, or belongs to another rollout.
        """
        use = self._next_use(part)
        if use not in self.by_use:
            if use in self.made_up or self._is_made_up(part):
                self.made_up.add(use)
                return Request(None, call, part)  # takes its response, and is then forgotten
            if is_recent or (self.previous is not None and use not in self.before_rollout):
                self.by_use[use] = self._with_lost_id(part) or Request(
                    self._find_hidden_requester(), call, part
                )
            elif part.get("id"):
                self.before_rollout.add(use)
        return self.by_use.get(use)

    def _is_made_up(self, part: Part) -> bool:
        """Return whether no model made a request of a history: none was offered such a tool.

        LangGraph's supervisor writes `transfer_back_to_supervisor` into the history so. Without a
        call before, or if that may have made the request, a model may have been offered the tool.
        """
        if self.previous is None or not part.get("id"):
            return False
        if not self.has_offered:
            self.offered, self.has_offered = _offered(self.calls), True
        if self.offered is None or letters(part.get("name")) in self.offered:
            return False
        return not self._find_hidden_requester()

    def _with_lost_id(self, part: Part) -> Request | None:
        """Return the previous call's request that a history repeats, if its output lost the id.

        It is then known by its id.
        """
        if not self.has_one_without_id or not part.get("id"):
            return None
        for use, request in self.by_use.items():
            if not use[0] and request.requester is self.previous and _agree(request.part, part):
                del self.by_use[use]
                request.part = part
                return request
        return None

    def _find_hidden_requester(self) -> LlmCall | None:
        """Return the requester of a request that no recorded output showed."""
        if not self.has_hidden_requester:
            self.hidden_requester, self.has_hidden_requester = self._possible_requester(), True
        return self.hidden_requester

    def _possible_requester(self) -> LlmCall | None:
        """Return the previous call as the requester, or None if its recorded output rules that out.

        The output rules it out if it is complete and did not contain this request. Frameworks add
        tool calls to a history that no model made, for example for a handoff.
        """
        previous = self.previous
        if previous is None or not (answer := outputs(previous)):
            return previous
        tool_calls = [part for message in answer for part in _calls_in(message)]
        # The model ended with tool calls, but the instrumentation recorded none of them; or it
        # recorded nothing of the answer, nor why it ended.
        is_unknown = previous.finish_reason is None and not any(one["parts"] for one in answer)
        are_lost = is_unknown or (not tool_calls and previous.finish_reason == "tool_calls")
        # Tool calls without ids cannot be compared, so this request may be one of them. With ids it
        # would be known already, from the output.
        return previous if are_lost or not all(part.get("id") for part in tool_calls) else None

    def _unanswered(self) -> list[Request]:
        """Return the requests without a response.

        They matter if the provider stores the history: then a call sends only the tool responses.
        """
        return [request for request in self.by_use.values() if request.response is None]

    def _answered_without_ids(self) -> list[Part]:
        """Return the responses so far that have no id, in order.

        A history without the turns of the assistant begins with them, as TanStack AI writes it.
        """
        responses = (request.response for request in self.by_use.values())
        return [one for one in responses if one is not None and not one.get("id")]

    def _missing_request(self, response: Part) -> list[Request]:
        """Return the known request with a response's id: the history may have lost it."""
        call_id = response.get("id")
        request = self.by_use.get((call_id, 1)) if call_id else None
        return [request] if request else []

    @staticmethod
    def _answer(response: Part, waiting: list[Request], call: LlmCall) -> bool:
        """Assign a response to the request that waits for it; return whether there was one."""
        call_id = response.get("id")
        # The request with this id; or the first one without a response, for packages whose requests
        # and responses have different ids, or none.
        place = unanswered = -1
        for at, request in enumerate(waiting):
            if request.part.get("id") == call_id:
                place = at
                break
            if unanswered < 0 and request.response is None:
                unanswered = at
        place = place if place >= 0 else unanswered
        if place < 0 or (
            place == unanswered and _is_answered_by_another(waiting[place], call_id, call)
        ):
            return False
        request = waiting.pop(place)
        if request.response is None:
            # Later inputs repeat the response. The first one that shows it bounds the time of the
            # execution.
            request.response, request.answered_ns = response, call.start_ns
        return True

    def _add_from_response(self, response: Part, call: LlmCall) -> None:
        """Record an execution known from its response alone: the provider stores the request."""
        part = {"type": "tool_call", "id": response.get("id")}
        self.by_use[self._next_use(part)] = Request(
            self._find_hidden_requester(), call, part, response, call.start_ns
        )


def _offered(calls: Sequence[LlmCall]) -> Collection[str] | None:
    """Return the names of the tools that the models of a rollout were offered, as `letters`.

    Returns:
        None if not all are known: the calls of an instrumentation state no tools at all, or a
        provider has tools of its own, such as those of an MCP server.
    """
    scopes = {call.scope_name for call in calls if call.tool_definitions}
    if any(call.scope_name not in scopes for call in calls):
        return None
    # The calls of an agent share one list.
    lists = {id(call.tool_definitions): call.tool_definitions for call in calls}
    stated = [tool for definitions in lists.values() for tool in definitions or ()]
    if any(tool.get("type", "function") != "function" for tool in stated):
        return None
    names = [tool.get("name") for tool in stated]
    return {letters(name if isinstance(name, str) else None) for name in names}


@lru_cache(maxsize=1024)
def letters(name: str | None) -> str:
    """Return the letters and digits of a name, in lower case."""
    return re.sub(r"[\W_]", "", name or "").lower()


def _agree(one: Part, other: Part) -> bool:
    """Return whether two tool calls may be the same one, as far as both are known."""
    pairs = [(one.get(key), other.get(key)) for key in ("name", "arguments")]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _is_answered_by_another(request: Request, call_id: str | None, call: LlmCall) -> bool:
    """Return whether another response of this input has the request's id: this one has not."""
    own = request.part.get("id")
    if not own or own == call_id:
        return False
    messages = call.input_messages or ()
    return any(own == part.get("id") for message in messages for part in _responses_in(message))


def _has_assistant(history: Sequence[Message]) -> bool:
    return "assistant" in [message["role"] for message in history]


def _length_of_last_step(history: Sequence[Message]) -> int:
    """Return the number of final messages: the last tool responses and the turn before them."""
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
