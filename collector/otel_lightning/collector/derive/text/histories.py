"""A call's messages as hashes: which call continues which, and which models saw the same.

Every part is hashed once; all else is hashed from those hashes. Reasoning is left out of a history,
because providers do not send it back, and so are the spelling of arguments and how a turn was cut
into messages.

A tool call's id is made up by the provider, mostly at random. It tells one rollout from another
that says the same, so a history that is looked for holds it. It says nothing to a model, so what a
model saw has the number of the tool call in its place.
"""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b, sha256
from operator import is_
from typing import Any, NamedTuple

from otel_lightning.collector.derive.rows import LlmCall, Message
from otel_lightning.collector.derive.text.hosted_tools import is_hosted
from otel_lightning.collector.derive.text.json_text import dumps
from otel_lightning.collector.derive.text.message_memory import MessageMemory, SharedMessage
from otel_lightning.collector.derive.text.messages import SHORT

LOOK_BACK = 16
"""Number of turns at the end of a history by which it is looked up; up to this many calls may be
missing between two recorded ones."""
TEXT_KEYS = len(("type", "content"))
REDACTED = "redacted"
TOOL_PARTS = ("tool_call", "tool_call_response")
NOT_SAID = ("id", "arguments_raw")
"""Keys of a tool's part that are not the model's words: its id, and the raw text of arguments."""


class History(NamedTuple):
    """The hashes of a call's messages."""

    begins: list[str]
    """Hashes of the longest beginnings of the input that end with the assistant's turn."""
    ends: list[str]
    """Hashes of the input with each choice of the output. After tools, the hash of the text alone
    is among them: many agents keep only what the user and the assistant said."""
    saw: str | None
    """A hash of the whole input, reasoning included and ids of tool calls left out, if there is
    one."""
    tools: bool
    """Whether tool calls or their responses are among the messages."""
    unasked: list[str]
    """The ids of the responses in the input whose requests are not in it."""
    asked: tuple[str | None, ...] = ()
    """The ids of the tool calls in the output."""
    answers: bool = False
    """Whether the input has responses to tool calls."""
    is_paired: bool = True
    """Whether each response in the input answers a tool call of the assistant's turn before it."""


def history(call: LlmCall, memory: MessageMemory | None = None) -> History:
    """Hash a call's messages so that equal histories have equal hashes, in one pass.

    An outline without text says who spoke and not what: it identifies a history only from the first
    tool call id on. Where a layer loses the ids of tool calls (`lost_ids`), a history is looked for
    without them too.

    Args:
        call: The call.
        memory: Messages read before. The hashes of an input that it continues are used again.
    """
    if (short := _short_history(call)) is not None:
        return short
    sent = _hashed_input(call, memory)
    chain, bare, numbers = sent.chain, sent.bare, sent.numbers
    begins = [*sent.begins, chain.digest()][-LOOK_BACK:] if sent.is_answered else sent.begins
    choices = [_turn(choice) for choice in call.output_messages or ()]
    tools = bare is not chain or True in [choice.tools for choice in choices]
    saw = bare.digest(sent.thoughts) if call.input_messages else None
    of_tools = (
        tools,
        [*numbers.unasked],
        choices[0].asked
        if len(choices) == 1
        else tuple([one for choice in choices for one in choice.asked]),
        sent.answers,
        sent.is_paired,
    )
    if saw is None or (call.content == REDACTED and not _names_tools(call)):
        return History([], [], saw, *of_tools)
    ends = [chain.after(choice.said) for choice in choices]
    # The next input has ids that this output lacks, so it finds this call by the history without
    # ids.
    if call.lost_ids or any(None in choice.asked for choice in choices):
        # In a copy, because `of` numbers the tool calls of the choice that it gets.
        ends += [bare.after(numbers.copy().of(choice)) for choice in choices]
    if sent.plain is not chain:
        ends += [sent.plain.after(choice.said) for choice in choices if not choice.tools]
    # These are searched from the end, so the least exact one, without ids, is the first.
    found = [sent.last, *begins] if sent.last else [*begins]
    return History(found, list(dict.fromkeys(ends)), saw, *of_tools)


def _short_history(call: LlmCall) -> History | None:
    """Return the history of a few texts and one answer of text, or None for any other call.

    A fast path: it returns the same as the general path.
    """
    sent, answered = call.input_messages, call.output_messages
    if not sent or not answered or len(sent) > SHORT or len(answered) != 1:
        return None
    # These histories are looked for without ids, too, or not at all.
    if call.lost_ids or call.content == REDACTED or (said := _texts(answered[0])) is None:
        return None
    if "tool" in [message["role"] for message in sent]:  # before any text is hashed in vain
        return None
    running = blake2b(digest_size=16)
    begins: list[str] = []
    before = None
    for message in sent:
        role, asked = message["role"], _texts(message)
        if asked is None:
            return None
        if before == "assistant":
            begins += [running.hexdigest()] if role != "assistant" else []
        running.update(_following(before, role, asked))
        before = role
    saw = running.hexdigest()
    begins += [saw] if before == "assistant" else []
    running.update(_following(before, "assistant", said))
    return History(begins, [running.hexdigest()], saw, tools=False, unasked=[])


def _following(before: str | None, role: str, said: bytes) -> bytes:
    """Return what a message adds to the hash of a history; a turn may be several messages."""
    if role == before == "assistant":
        return said
    return b"\0%s\0%s" % (role.encode(), said)


def _texts(message: Message) -> bytes | None:
    """Return the hashes of a message that has text alone, or None for any other message."""
    parts = message["parts"]
    if len(parts) == 1:  # as most messages have
        part = parts[0]
        content = part.get("content")
        # A part with a further key, such as a cache mark, is hashed with all of its keys.
        if part["type"] != "text" or len(part) != TEXT_KEYS or type(content) is not str:
            return None
        return b"t" + sha256(content.encode("utf-8", "replace")).digest()
    hashes = b""
    for part in parts:
        content = part.get("content")
        if part["type"] != "text" or len(part) != TEXT_KEYS or type(content) is not str:
            return None
        hashes += b"t" + sha256(content.encode("utf-8", "replace")).digest()
    return hashes or None


def _names_tools(call: LlmCall) -> bool:
    turns = [*(call.input_messages or []), *(call.output_messages or [])]
    return any(part.get("id") for turn in turns for part in turn["parts"])


class _Turn(NamedTuple):
    """The hashes of one message's parts, one after the other."""

    said: bytes
    thoughts: bytes
    """The reasoning, apart from what was said."""
    tools: bool
    asked: tuple[str | None, ...]
    """The ids of its tool calls."""
    answered: tuple[str | None, ...]
    """The ids of its responses."""
    bare: bytes
    """What was said, without these ids."""


_TURN: Callable[[Any], _Turn] = partial(tuple.__new__, _Turn)
"""Makes a turn of a tuple of all its fields, faster than `_Turn(…)`."""


class _Numbers:
    """The tool calls of one history by their numbers, which stand for their ids."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._open: dict[int, None] = {}
        self._count = 0
        self.unasked: list[str] = []
        """The ids of responses that no tool call before them has."""

    def copy(self) -> "_Numbers":
        """Return what is known so far, to go on from more than once."""
        twin = _Numbers()
        twin._known, twin._open = dict(self._known), dict(self._open)
        twin._count = self._count
        return twin

    def of(self, turn: _Turn) -> bytes:
        """Return what a turn says, with numbers in place of the ids of its tool calls."""
        if not turn.tools:
            return turn.said
        numbers = ""
        for one in turn.asked:
            numbers += f",{self._ask(one)}"
        for one in turn.answered:
            numbers += f",{self._answer(one)}"
        return turn.bare + numbers[1:].encode()

    def _ask(self, call_id: str | None) -> int:
        self._count += 1
        self._open[self._count] = None
        if call_id:
            self._known[call_id] = self._count
        return self._count

    def _answer(self, call_id: str | None) -> int:
        """Return the number of the call that is answered: by its id, else the first still open."""
        number = self._known.get(call_id or "")
        if number is None:
            self.unasked += [call_id] if call_id else []
            number = next(iter(self._open), 0)
        self._open.pop(number, None)
        return number


def _turn(message: Message) -> _Turn:
    if type(message) is not SharedMessage:
        return _hashed(message)
    if message.turn is None:
        message.turn = _hashed(message)
    turn: _Turn = message.turn
    return turn


def _hashed(message: Message) -> _Turn:
    if message["role"] != "tool" and (texts := _texts(message)) is not None:
        return _TURN((texts, b"", False, (), (), b""))
    said = bare = thoughts = b""
    tools = False
    asked: list[str | None] = []
    answered: list[str | None] = []
    for part in message["parts"]:
        kind = part["type"]
        if kind == "reasoning":
            thoughts += _hash(part)
        elif kind in TOOL_PARTS or is_hosted(kind):
            tools = True
            call_id = part.get("id") or None
            alone = part.copy()
            for key in NOT_SAID:
                alone.pop(key, None)
            hashed = b"p" + sha256(dumps(alone, sort_keys=True)).digest()
            bare += hashed
            said += b"%s#%s" % (hashed, str(call_id).encode(errors="replace"))
            # A tool that the provider ran has an id, but no message of the agent answers it.
            if kind in TOOL_PARTS:
                (asked if kind == "tool_call" else answered).append(call_id)
        else:
            hashed = _hash(part)
            bare += hashed
            said += hashed
    return _TURN((said, thoughts, tools, tuple(asked), tuple(answered), bare))


def _hash(part: dict[str, Any]) -> bytes:
    """Return the hash of what a part says, with a mark that keeps text apart from all else."""
    content = part.get("content")
    if part["type"] == "text" and len(part) == TEXT_KEYS and type(content) is str:
        return b"t" + sha256(content.encode("utf-8", "replace")).digest()
    return b"p" + sha256(dumps(part, sort_keys=True)).digest()


class _Input:
    """The hashes of an input, message by message."""

    def __init__(self, *, lost_ids: bool) -> None:
        """Start before the first message.

        Args:
            lost_ids: Whether the history is looked for without the ids of tool calls, too.
        """
        # `bare` has no ids of tool calls, `plain` no messages that call tools or answer them. All
        # three are one object until a message differs.
        self.chain = self.bare = self.plain = _Chain()
        self.numbers = _Numbers()
        self.begins: list[str] = []
        self.last: str | None = None
        """The longest beginning that ends with the assistant's turn, without ids."""
        self.thoughts = b""
        self.lost_ids = lost_ids
        self.answers, self.is_paired = False, True
        self._asked: tuple[str | None, ...] = ()
        """The ids of the tool calls of the assistant's last message."""

    @property
    def is_answered(self) -> bool:
        """Whether the last message is the assistant's."""
        return self.chain.role == "assistant"

    def add(self, message: Message) -> None:
        """Add the hashes of the next message."""
        turn, role, chain = _turn(message), message["role"], self.chain
        if chain.role == "assistant" and role != "assistant":
            # The assistant's turn has ended. The last `LOOK_BACK` beginnings are kept.
            self.begins = [*self.begins[1 - LOOK_BACK :], chain.digest()]
            self.last = self.bare.digest() if self.lost_ids else None
        if role == "assistant":
            self._asked = turn.asked
        if turn.tools:
            self._add_of_tools(turn, role)
        else:
            if self.plain is not chain:
                self.plain.add(role, turn.said)
            if self.bare is not chain:
                self.bare.add(role, turn.said)
        chain.add(role, turn.said)
        if turn.thoughts:
            # With the hash of all messages so far, so that the place of the reasoning counts too.
            self.thoughts += self.bare.digest().encode() + turn.thoughts

    def _add_of_tools(self, turn: _Turn, role: str) -> None:
        """Add a message that calls tools or answers them to all but the full history."""
        chain = self.chain
        # From here on the three histories differ. `plain` gets no message of tools at all.
        if self.bare is chain:
            self.bare = chain.copy()
        if self.plain is chain:
            self.plain = chain.copy()
        for one in turn.answered:
            self.answers = True
            if one not in self._asked:
                self.is_paired = False
        self.bare.add(role, self.numbers.of(turn))


def _hashed_input(call: LlmCall, memory: MessageMemory | None) -> _Input:
    """Hash a call's input; where it continues one that was hashed before, only what is new."""
    sent = call.input_messages or []
    # One message continues no other input.
    if memory is None or len(sent) < 2 or type(sent[-1]) is not SharedMessage:  # noqa: PLR2004
        found = _Input(lost_ids=call.lost_ids)
        for message in sent:
            found.add(message)
        return found
    found, count = _continued(sent, memory, lost_ids=call.lost_ids)
    for message in sent[count:]:
        found.add(message)
    # A copy of the list, because the call may change its own. It keeps the messages alive, so that
    # none of their `id()`s is used again.
    memory.keep_hashes(sent[:], found)
    return found


def _continued(sent: list[Message], memory: MessageMemory, *, lost_ids: bool) -> tuple[_Input, int]:
    """Return the hashes of the longest known beginning of an input, and its number of messages."""
    # If the first message was never hashed, no hashed input begins with it.
    is_new = type(sent[0]) is SharedMessage and sent[0].turn is None
    for count in () if is_new else range(len(sent), max(len(sent) - LOOK_BACK, 1), -1):
        if (known := memory.hashed.get(id(sent[count - 1]))) is None:
            continue
        before, found = known
        # Messages are shared, so the same objects are the same messages: no text is compared.
        if found.lost_ids == lost_ids and len(before) == count and all(map(is_, before, sent)):
            # Removed, because `found` is extended in place: an input that branches off here is
            # hashed from its first message.
            del memory.hashed[id(sent[count - 1])]
            return found, count
    return _Input(lost_ids=lost_ids), 0


class _Chain:
    """A running hash over messages, by turns: neighbouring assistant messages are one."""

    def __init__(self) -> None:
        self.role: str | None = None
        self._hash = blake2b(digest_size=16)

    def copy(self) -> "_Chain":
        """Return the history so far, to go on with it in another way."""
        twin = _Chain()
        twin.role, twin._hash = self.role, self._hash.copy()
        return twin

    def digest(self, more: bytes = b"") -> str:
        """Return the hash so far, or that of one thing more."""
        if not more:
            return self._hash.hexdigest()
        twin = self._hash.copy()
        twin.update(more)
        return twin.hexdigest()

    def add(self, role: str, said: bytes) -> None:
        """Add what the next message says."""
        self._hash.update(_following(self.role, role, said))
        self.role = role

    def after(self, said: bytes) -> str:
        """Return the hash of this history with the assistant's next turn."""
        return self.digest(_following(self.role, "assistant", said))
