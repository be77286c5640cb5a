"""Find the request that each execution of a tool belongs to."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from otel_lightning.collector.derive.passes.tools.tool_requests import Request, letters
from otel_lightning.collector.derive.rows import ToolCall
from otel_lightning.collector.derive.text.json_text import dumps


class WaitingRequests:
    """Requests that are not yet joined to a tool span. Query executions in time order."""

    def __init__(self, requests: Sequence[Request]) -> None:
        """Begin with the requests of a rollout, in order."""
        self._requests = requests
        self._by_id: dict[str, deque[Request]] | None = None
        # In reverse, so that `pop` returns the earliest request.
        self._later: list[Request] | None = None
        # Stacks of requests, the latest on top, under the keys (name, arguments) and (name,). The
        # arguments of a name's requests are written when an execution's are compared with them.
        self._stacks: dict[tuple[Any, ...], list[Request]] = defaultdict(list)
        self._uncompared: dict[Any, list[Request]] = defaultdict(list)
        # The names of tools that have the same letters and digits.
        self._alike: dict[str, dict[Any, None]] = defaultdict(dict)

    def take(self, execution: ToolCall) -> Request | None:
        """Return the request that an execution belongs to: by id or, without one, the latest match.

        Matches are tried in this order: same name and arguments, same name, the same two with a
        name that providers allow, and a name among the arguments of a dispatcher.
        """
        if execution.tool_call_id and (request := self._by_its_id(execution.tool_call_id)):
            return request
        start = execution.start_ns or 0
        self._stack(start - 1)
        return self._match(execution) or self._match_of_same_start(execution, start)

    def _match_of_same_start(self, execution: ToolCall, start: int) -> Request | None:
        """Return the best match among the requests of calls that started with the execution.

        They come last: JavaScript's clock counts in milliseconds, so the next call may seem to
        start with the tool that the call before it asked for.
        """
        same_start = list(takewhile(lambda one: _start(one) == start, reversed(self._later or ())))
        if not same_start:
            return None
        others = WaitingRequests([one for one in same_start if not one.is_joined])
        others._stack(start)
        return others._match(execution)

    def _match(self, execution: ToolCall) -> Request | None:
        """Return the best match among the requests on the stacks."""
        name, arguments = execution.name, execution.arguments
        return (
            self._of_name(name, arguments)
            or self._allowed(name, arguments)
            or self._latest([(inside,) for inside in _names_inside(arguments)])
        )

    def _of_name(self, name: Any, arguments: Any) -> Request | None:
        """Return the latest request of a name: with the same arguments or, without one, any."""
        if arguments is not None:
            for request in self._uncompared.pop(name, ()):
                self._stacks[name, canonical(request.part.get("arguments"))].append(request)
        same_call = (name, None if arguments is None else canonical(arguments))
        return self._latest([same_call]) or self._latest([(name,)])

    def _allowed(self, name: Any, arguments: Any) -> Request | None:
        """Return the latest request whose name has the same letters and digits.

        Providers allow no spaces, so CrewAI offers `Delegate work` as `delegate_work`, and
        `searchWeb` as `search_web`.
        """
        others = (one for one in self._alike.get(letters(name), ()) if one != name)
        found = (self._of_name(other, arguments) for other in others)
        return next(filter(None, found), None)

    def _stack(self, until: int) -> None:
        """Put the requests that started before an execution on their stacks.

        Executions come in time order, so the stacks have no request from after this one.
        """
        if self._later is None:
            self._later = sorted(self._requests, key=_start)[::-1]
        while self._later and _start(self._later[-1]) <= until:
            request = self._later.pop()
            name = request.part.get("name")
            self._stacks[(name,)].append(request)
            self._alike[letters(name)][name] = None
            if request.part.get("arguments") is None:
                self._stacks[name, None].append(request)
            else:
                self._uncompared[name].append(request)

    def _by_its_id(self, call_id: str) -> Request | None:
        if self._by_id is None:
            self._by_id = defaultdict(deque)
            for request in self._requests:
                self._by_id[request.part.get("id") or ""].append(request)
        same = self._by_id.get(call_id)
        while same and same[0].is_joined:
            same.popleft()
        return same[0] if same else None

    def _latest(self, keys: Iterable[tuple[Any, ...]]) -> Request | None:
        """Return the first unjoined request of the latest call that has one under these keys."""
        stack: list[Request] = []
        for key in keys:
            other = self._stacks.get(key)
            while other and other[-1].is_joined:
                other.pop()
            # Of equals the first.
            if other and (not stack or _start(other[-1]) > _start(stack[-1])):
                stack = other
        if not stack:
            return None
        # The requests of the latest call are on top. Its parallel requests are executed in the
        # order in which they were requested, so the lowest of them comes first.
        requester, first = stack[-1].requester, stack[-1]
        for request in reversed(stack):
            if request.requester is not requester:
                break
            if not request.is_joined:
                first = request
        return first


def canonical(arguments: Any) -> bytes:
    """Return the arguments of a tool call as JSON; equal arguments give equal bytes."""
    return dumps(arguments, sort_keys=True)


def _start(request: Request) -> int:
    return (request.requester.start_ns if request.requester else 0) or 0


def _names_inside(arguments: Any) -> Iterator[str]:
    """Yield the arguments of a decorated dispatcher that may be the name of a tool."""
    if isinstance(arguments, dict):
        listed = arguments.get("args")
        values = [*arguments.values(), *(listed if isinstance(listed, list) else [])]
        yield from (value for value in values if isinstance(value, str))
