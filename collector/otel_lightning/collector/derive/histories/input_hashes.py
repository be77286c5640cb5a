"""The hashes of an input, message by message: one that continues another goes on from it."""

from hashlib import blake2b
from operator import is_

from otel_lightning.collector.derive.histories.message_hashes import (
    ASSISTANT,
    HEADS,
    MessageHashes,
    ToolCallNumbers,
    hashes_of,
    whole_turns,
)
from otel_lightning.collector.derive.messages.message_memory import MessageMemory, SharedMessage
from otel_lightning.collector.derive.rows import LlmCall, Message

LOOK_BACK = 16
"""Number of turns at the end of a history by which it is looked up; up to this many calls may be
missing between two recorded ones."""


class InputHashes:
    """The hashes of an input, message by message, as three histories.

    `chain` is the whole input, `without_ids` has numbers in place of the ids of tool calls, and
    `without_tools` lacks the messages that call tools or answer them.
    """

    def __init__(self, *, lost_ids: bool) -> None:
        """Start before the first message.

        Args:
            lost_ids: Whether the history is looked for without the ids of tool calls, too.
        """
        # All three are one object until a message differs.
        self.chain = self.without_ids = self.without_tools = _Chain()
        self.numbers = ToolCallNumbers()
        self.prefixes: list[str] = []
        self.prefix_without_ids: str | None = None
        """The longest beginning that ends with the assistant's turn, without ids."""
        self.reasoning = b""
        self.lost_ids = lost_ids
        self.has_responses, self.is_paired = False, True
        self._tool_call_ids: tuple[str | None, ...] = ()
        """The ids of the tool calls of the assistant's last message."""

    @property
    def is_answered(self) -> bool:
        """Whether the last message is the assistant's."""
        return self.chain.role == "assistant"

    def add(self, message: Message) -> None:
        """Add the hashes of the next message."""
        hashes, role, chain = hashes_of(message), message["role"], self.chain
        if chain.role == "assistant" and role != "assistant":
            # The assistant's turn has ended. The last `LOOK_BACK` beginnings are kept.
            self.prefixes = [*self.prefixes[1 - LOOK_BACK :], chain.digest()]
            self.prefix_without_ids = self.without_ids.digest() if self.lost_ids else None
        if role == "assistant":
            self._tool_call_ids = hashes.tool_call_ids
        if hashes.has_tools:
            self._add_of_tools(hashes, role)
        else:
            if self.without_tools is not chain:
                self.without_tools.add(role, hashes.content)
            if self.without_ids is not chain:
                self.without_ids.add(role, hashes.content)
        chain.add(role, hashes.content)
        if hashes.reasoning:
            # With the hash of all messages so far, so that the place of the reasoning counts too.
            self.reasoning += self.without_ids.digest().encode() + hashes.reasoning

    def _add_of_tools(self, hashes: MessageHashes, role: str) -> None:
        """Add a message of tools to the histories without ids and without tools."""
        chain = self.chain
        # From here on the three histories differ.
        if self.without_ids is chain:
            self.without_ids = chain.copy()
        if self.without_tools is chain:
            self.without_tools = chain.copy()
        for call_id in hashes.response_ids:
            self.has_responses = True
            if call_id not in self._tool_call_ids:
                self.is_paired = False
        self.without_ids.add(role, self.numbers.of(hashes))


def hashed_input(call: LlmCall, memory: MessageMemory | None) -> InputHashes:
    """Hash a call's input. If it continues one that was hashed before, only add new messages."""
    sent = call.input_messages or []
    # One message continues no other input.
    if memory is None or len(sent) < 2 or type(sent[-1]) is not SharedMessage:  # noqa: PLR2004
        hashes = InputHashes(lost_ids=call.lost_ids)
        for message in whole_turns(sent):
            hashes.add(message)
        return hashes
    hashes, count = _continued(sent, memory, lost_ids=call.lost_ids)
    for message in whole_turns(sent[count:]):
        hashes.add(message)
    # A copy of the list, because the call may change its own. It keeps the messages alive, so that
    # none of their `id()`s is used again.
    memory.keep_hashes(sent[:], hashes)
    return hashes


def _continued(
    sent: list[Message], memory: MessageMemory, *, lost_ids: bool
) -> tuple[InputHashes, int]:
    """Return the hashes of the longest known beginning of an input, and its number of messages."""
    # If the first message was never hashed, no hashed input begins with it.
    is_new = type(sent[0]) is SharedMessage and sent[0].hashes is None
    for count in () if is_new else range(len(sent), max(len(sent) - LOOK_BACK, 1), -1):
        if (known := memory.hashed.get(id(sent[count - 1]))) is None:
            continue
        # A turn of the assistant is hashed as a whole.
        if [message["role"] for message in sent[count - 1 : count + 1]] == [ASSISTANT, ASSISTANT]:
            continue
        before, hashes = known
        # Messages are shared, so the same objects are the same messages: no text is compared.
        if hashes.lost_ids == lost_ids and len(before) == count and all(map(is_, before, sent)):
            # Removed, because `hashes` is extended in place: an input that branches off here is
            # hashed from its first message.
            del memory.hashed[id(sent[count - 1])]
            return hashes, count
    return InputHashes(lost_ids=lost_ids), 0


def _following(before: str | None, role: str, content: bytes) -> bytes:
    """Return the bytes that a message adds to the hash of a history.

    Neighbouring messages of the assistant are one turn, so only the first adds its role.
    """
    return content if role == before == ASSISTANT else HEADS[role] + content


class _Chain:
    """A running hash over turns: neighbouring messages of the assistant are one turn."""

    def __init__(self) -> None:
        self.role: str | None = None
        self._hash = blake2b(digest_size=16)

    def copy(self) -> "_Chain":
        """Return a copy, to which other messages can be added."""
        twin = _Chain()
        twin.role, twin._hash = self.role, self._hash.copy()
        return twin

    def digest(self, more: bytes = b"") -> str:
        """Return the hash so far, or the hash with one more thing added."""
        if not more:
            return self._hash.hexdigest()
        twin = self._hash.copy()
        twin.update(more)
        return twin.hexdigest()

    def add(self, role: str, content: bytes) -> None:
        """Add the hashes of the next message."""
        self._hash.update(_following(self.role, role, content))
        self.role = role

    def after(self, content: bytes) -> str:
        """Return the hash of this history with the assistant's next turn."""
        return self.digest(_following(self.role, "assistant", content))
