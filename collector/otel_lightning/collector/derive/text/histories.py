"""A call's messages as hashes: which call continues which, and which models saw the same.

Every part is hashed once; all else is hashed from those hashes. Reasoning is left out of a history,
because providers do not send it back, and so are the spelling of arguments and how a turn was cut
into messages.
"""

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

from otel_lightning.collector.derive.rows import LlmCall, Message
from otel_lightning.collector.derive.text.hosted_tools import is_hosted
from otel_lightning.collector.derive.text.json_text import dumps
from otel_lightning.collector.derive.text.repeated import Repeated

LOOK_BACK = 16
"""How many of its last turns a call's history is looked for by: so many may be unrecorded."""
TOOL_PARTS = ("tool_call", "tool_call_response")


class History(NamedTuple):
    """What a call's messages amount to."""

    begins: list[str]
    """Hashes of the longest beginnings of the input that end with the assistant's turn."""
    ends: list[str]
    """Hashes of the input with each choice of the output."""
    saw: str | None
    """A hash of the whole input, reasoning included, if there is one."""
    tools: bool
    """Whether tool calls or their responses are among the messages."""
    unasked: list[str]
    """The ids of the responses in the input whose requests are not in it."""


def history(call: LlmCall) -> History:
    """Hash a call's messages so that equal histories have equal hashes, in one pass.

    An outline without text says who spoke and not what: it identifies a history only from the first
    tool call id on.
    """
    chain = _Chain()
    begins: deque[str] = deque(maxlen=LOOK_BACK)
    thoughts = b""
    tools = False
    asked, answered = set[str](), list[str]()
    for message in call.input_messages or ():
        turn = _turn(message)
        if chain.role == "assistant" and message["role"] != "assistant":
            begins.append(chain.digest())
        chain.add(message["role"], turn)
        if turn.tools:
            tools = True
            asked.update(turn.asked)
            answered += turn.answered
        if turn.thoughts:
            thoughts += chain.digest().encode() + turn.thoughts
    if chain.role == "assistant":
        begins.append(chain.digest())
    choices = [_turn(choice) for choice in call.output_messages or ()]
    tools = tools or True in [choice.tools for choice in choices]
    saw = chain.digest(thoughts) if call.input_messages else None
    unasked = [one for one in answered if one not in asked]
    if saw is None or (call.content == "redacted" and not _names_tools(call)):
        return History([], [], saw, tools, unasked)
    ends = [chain.after(choice) for choice in choices]
    return History(list(begins), ends, saw, tools, unasked)


def _names_tools(call: LlmCall) -> bool:
    turns = [*(call.input_messages or []), *(call.output_messages or [])]
    return any(part.get("id") for turn in turns for part in turn["parts"])


class _Turn(NamedTuple):
    """The hashes of one message's parts, one after the other."""

    said: bytes
    thoughts: bytes
    """The reasoning, apart from what was said."""
    tools: bool
    asked: tuple[str, ...] = ()
    """The ids of its tool calls."""
    answered: tuple[str, ...] = ()
    """The ids of its responses."""


def _turn(message: Message) -> _Turn:
    if type(message) is not Repeated:
        return _hashed(message)
    if not hasattr(message, "turn"):
        message.turn = _hashed(message)
    turn: _Turn = message.turn
    return turn


def _hashed(message: Message) -> _Turn:
    said = thoughts = b""
    tools = False
    for part in message["parts"]:
        kind = part["type"]
        if kind == "reasoning":
            thoughts += _hash(part)
        else:
            said += _hash(part)
            tools = tools or kind in TOOL_PARTS or is_hosted(kind)
    if not tools:
        return _Turn(said, thoughts, tools)
    named = [(part["type"], part.get("id")) for part in message["parts"]]
    return _Turn(said, thoughts, tools, *(_ids(named, kind) for kind in TOOL_PARTS))


def _ids(named: Sequence[tuple[str, str | None]], kind: str) -> tuple[str, ...]:
    return tuple(one for found, one in named if found == kind and one)


def _hash(part: dict[str, Any]) -> bytes:
    """Return the hash of what a part says, with a mark that keeps text apart from all else."""
    content = part.get("content")
    if part["type"] == "text" and len(part) == len(("type", "content")) and type(content) is str:
        return b"t" + sha256(content.encode(errors="replace")).digest()
    if "arguments_raw" in part:
        part = {key: value for key, value in part.items() if key != "arguments_raw"}
    return b"p" + sha256(dumps(part, sort_keys=True)).digest()


class _Chain:
    """A running hash over messages, by turns: neighbouring assistant messages are one."""

    def __init__(self) -> None:
        self.role: str | None = None
        self._hash = blake2b(digest_size=16)

    def digest(self, more: bytes = b"") -> str:
        """Return the hash so far, or that of one thing more."""
        if not more:
            return self._hash.hexdigest()
        twin = self._hash.copy()
        twin.update(more)
        return twin.hexdigest()

    def add(self, role: str, turn: _Turn) -> None:
        self._hash.update(self._next(role, turn))
        self.role = role

    def after(self, turn: _Turn) -> str:
        """Return the hash of this history with the assistant's next turn."""
        return self.digest(self._next("assistant", turn))

    def _next(self, role: str, turn: _Turn) -> bytes:
        if role == "assistant" and self.role == "assistant":
            return turn.said
        return b"\0%s\0%s" % (role.encode(), turn.said)
