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
from hashlib import blake2b
from typing import Any

from otel_lightning.collector.derive.histories.input_hashes import LOOK_BACK, hashed_input
from otel_lightning.collector.derive.histories.message_hashes import (
    ASSISTANT,
    HEADS,
    Numbers,
    texts,
    turn_of,
)
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.messages import SHORT
from otel_lightning.collector.derive.rows import History, LlmCall, Message

REDACTED = "redacted"
NO_IDS: tuple[str | None, ...] = ()


_HISTORY: Callable[[Any], History] = partial(tuple.__new__, History)
"""Makes a history of a tuple of all its fields, faster than `History(…)`."""


def history(call: LlmCall, memory: MessageMemory | None = None) -> History:
    """Hash a call's messages so that equal histories have equal hashes, in one pass.

    An outline without text says who spoke and not what: it identifies a history only from the first
    tool call id on. Where a layer loses the ids of tool calls (`lost_ids`), a history is looked for
    without them too.

    Args:
        call: The call.
        memory: Messages read before. The hashes of an input that it continues are used again.
    """
    return _short_history(call) or any_history(call, memory)


def any_history(call: LlmCall, memory: MessageMemory | None = None) -> History:
    """Return what `history` does, whatever a call's messages are."""
    sent = hashed_input(call, memory)
    chain, bare, numbers = sent.chain, sent.bare, sent.numbers
    begins = [*sent.begins, chain.digest()][-LOOK_BACK:] if sent.is_answered else sent.begins
    choices = [turn_of(choice) for choice in call.output_messages or ()]
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
    """Return the history of a few messages and one answer, or None for any other call.

    A fast path: it returns the same as `any_history`. What a few messages add to the hashes of a
    history is put together, and hashed at once.
    """
    sent, answered = call.input_messages, call.output_messages
    if not sent or not answered or len(sent) > SHORT or len(answered) != 1:
        return None
    # These histories are looked for without ids, too, or not at all.
    if call.lost_ids or call.content == REDACTED:
        return None
    chain, before = b"", ""
    begins: list[str] = []
    for place, message in enumerate(sent):
        role = message["role"]
        asked = None if role == "tool" else texts(message)
        if asked is None:
            return _short_history_of_tools(sent[place:], answered[0], chain, before, begins)
        if role != before or role != ASSISTANT:
            if before == ASSISTANT:
                begins.append(_digest(chain))
            chain += HEADS[role]
        chain += asked
        before = role
    said = texts(answered[0])
    if said is None:
        return _short_history_of_tools([], answered[0], chain, before, begins)
    saw = _digest(chain)
    if before == ASSISTANT:
        begins.append(saw)
    else:
        chain += HEADS[ASSISTANT]
    return _HISTORY((begins, [_digest(chain + said)], saw, False, [], (), False, True))


def _short_history_of_tools(
    rest: list[Message], answer: Message, chain: bytes, before: str, begins: list[str]
) -> History:
    """Return a short history whose first messages are plain text.

    Args:
        rest: The messages after them.
        answer: The output.
        chain: What the first messages add to the hash of the history.
        before: The role of the last of them; '' if there is none.
        begins: The beginnings among them that end with the assistant's turn; extended in place.
    """
    # `bare` and `plain` are as in `Input`. Two messages that follow each other in `chain` may have
    # messages of tools between them, which `plain` lacks.
    bare = plain = chain
    before_plain, thoughts, asked = before, b"", NO_IDS
    numbers, has_tools, answers, is_paired = Numbers(), False, False, True
    for message in rest:
        role, turn = message["role"], turn_of(message)
        if role == ASSISTANT:
            asked = turn.asked
        elif before == ASSISTANT:
            begins.append(_digest(chain))
        head = b"" if role == before == ASSISTANT else HEADS[role]
        before = role
        chain += head + turn.said
        if turn.tools:
            has_tools = True
            bare += head + numbers.of(turn)
            for one in turn.answered:
                answers, is_paired = True, is_paired and one in asked
        else:
            bare += head + turn.said
            plain += turn.said if role == before_plain == ASSISTANT else HEADS[role] + turn.said
            before_plain = role
        if turn.thoughts:
            thoughts += _digest(bare).encode() + turn.thoughts
    saw, unasked = _digest(bare + thoughts), [*numbers.unasked]
    if before == ASSISTANT:
        begins.append(_digest(chain))
    head = b"" if before == ASSISTANT else HEADS[ASSISTANT]
    choice = turn_of(answer)
    ends = [_digest(chain + head + choice.said)]
    # See `any_history` for the other ends.
    if None in choice.asked:
        ends.append(_digest(bare + head + numbers.of(choice)))
    if has_tools and not choice.tools:
        head = b"" if before_plain == ASSISTANT else HEADS[ASSISTANT]
        ends.append(_digest(plain + head + choice.said))
    found = [*dict.fromkeys(ends)]
    tools = has_tools or choice.tools
    return _HISTORY((begins, found, saw, tools, unasked, choice.asked, answers, is_paired))


def _digest(said: bytes) -> str:
    return blake2b(said, digest_size=16).hexdigest()


def _names_tools(call: LlmCall) -> bool:
    turns = [*(call.input_messages or []), *(call.output_messages or [])]
    return any(part.get("id") for turn in turns for part in turn["parts"])
