"""The size of the messages of some calls, each message counted once."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import filterfalse

from otel_lightning.collector.derive.messages.message_memory import length
from otel_lightning.collector.derive.rows import LlmCall, Message


class TextSize:
    """Number of characters of the messages of some calls.

    Several calls may share one message object. It counts once, from the first call added with it
    until the last such call is removed.
    """

    def __init__(self) -> None:
        self.size = 0
        """Number of characters."""
        self._uses = Counter[int]()
        """Number of added calls that have each message, by its `id()`. As long as one has it,
        the object lives, so no other object gets this `id()`."""

    def add(self, calls: Iterable[LlmCall]) -> None:
        """Count the messages of calls."""
        for call in calls:
            self.size += _packed_size(call)
            messages = [*_messages(call)]
            ids = [*map(id, messages)]
            by_id = dict(zip(ids, messages, strict=True))
            new = filterfalse(self._uses.__contains__, by_id)
            self.size += sum(length(by_id[one]) for one in new)
            self._uses.update(ids)

    def remove(self, calls: Iterable[LlmCall]) -> None:
        """Stop counting the messages of calls that were added before."""
        for call in calls:
            self.size -= _packed_size(call)
            for message in _messages(call):
                uses = self._uses.pop(id(message)) - 1
                if uses:
                    self._uses[id(message)] = uses
                else:
                    self.size -= length(message)


def _packed_size(call: LlmCall) -> int:
    return sum(len(text or b"") for text in call.packed or ())


def _messages(call: LlmCall) -> Iterator[Message]:
    yield from call.input_messages or ()
    yield from call.output_messages or ()
