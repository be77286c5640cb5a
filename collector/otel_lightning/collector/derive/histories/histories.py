"""A call's messages as hashes: which call continues which, and which models saw the same.

Every part is hashed once; all else is hashed from those hashes. Reasoning is left out of a history,
because providers do not send it back, and so are the spelling of arguments, how a turn was cut into
messages, and a text of the assistant into parts or messages.

A tool call's id is made up by the provider, mostly at random. It tells one rollout from another
that says the same, so a history that is looked for holds it. It says nothing to a model, so what a
model saw has the number of the tool call in its place.
"""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from otel_lightning.collector.derive.histories.input_hashes import (
    LOOK_BACK,
    InputHashes,
    hashed_input,
)
from otel_lightning.collector.derive.histories.message_hashes import (
    ASSISTANT,
    HEADS,
    MessageHashes,
    ToolCallNumbers,
    hashes_of,
    texts,
    whole_turns,
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
    """Hash the messages of any call; `history` takes a faster way for most calls."""
    sent = hashed_input(call, memory)
    chain, without_ids, numbers = sent.chain, sent.without_ids, sent.numbers
    prefixes = [*sent.prefixes, chain.digest()][-LOOK_BACK:] if sent.is_answered else sent.prefixes
    choices = [hashes_of(choice) for choice in call.output_messages or ()]
    input_hash = without_ids.digest(sent.reasoning) if call.input_messages else None
    about_tools = (
        without_ids is not chain or True in [choice.has_tools for choice in choices],
        [*numbers.unrequested_ids],
        choices[0].tool_call_ids
        if len(choices) == 1
        else tuple([call_id for choice in choices for call_id in choice.tool_call_ids]),
        sent.has_responses,
        sent.is_paired,
    )
    if input_hash is None or (call.content == REDACTED and not _names_tools(call)):
        return History([], [], input_hash, *about_tools)
    # These are searched from the end, so the least exact one, without ids, is the first.
    least_exact = [sent.prefix_without_ids] if sent.prefix_without_ids else []
    with_answer = _with_answer(sent, choices, lost_ids=call.lost_ids)
    return History([*least_exact, *prefixes], with_answer, input_hash, *about_tools)


def _with_answer(
    sent: InputHashes, choices: Sequence[MessageHashes], *, lost_ids: bool
) -> list[str]:
    """Return the hashes of an input with each choice of the output, each once.

    Args:
        sent: The hashes of the input.
        choices: The hashes of the choices.
        lost_ids: Whether the instrumentation loses the ids of tool calls.
    """
    hashes = [sent.chain.after(choice.content) for choice in choices]
    # The next input has ids that this output lacks, so it finds this call by the history without
    # ids.
    if lost_ids or any(None in choice.tool_call_ids for choice in choices):
        # In a copy, because `of` numbers the tool calls of the choice that it gets.
        hashes += [sent.without_ids.after(sent.numbers.copy().of(choice)) for choice in choices]
    if sent.without_tools is not sent.chain:
        hashes += [
            sent.without_tools.after(choice.content) for choice in choices if not choice.has_tools
        ]
    return list(dict.fromkeys(hashes))


def _short_history(call: LlmCall) -> History | None:
    """Return the history of a few messages and one answer, or None for any other call.

    A fast path: it returns the same as `any_history`. The bytes that a few messages add to the hash
    of a history are joined, and hashed at once.
    """
    sent, answered = call.input_messages, call.output_messages
    if not sent or not answered or len(sent) > SHORT or len(answered) != 1:
        return None
    # These histories are looked for without ids, too, or not at all.
    if call.lost_ids or call.content == REDACTED:
        return None
    chain, before = b"", ""
    prefixes: list[str] = []
    sent = whole_turns(sent)
    for place, message in enumerate(sent):
        role = message["role"]
        content = None if role == "tool" else texts(message)
        if content is None:
            return _short_history_with_tools(sent[place:], answered[0], chain, before, prefixes)
        if role != before or role != ASSISTANT:
            if before == ASSISTANT:
                prefixes.append(_digest(chain))
            chain += HEADS[role]
        chain += content
        before = role
    answer = texts(answered[0])
    if answer is None:
        return _short_history_with_tools([], answered[0], chain, before, prefixes)
    input_hash = _digest(chain)
    if before == ASSISTANT:
        prefixes.append(input_hash)
    else:
        chain += HEADS[ASSISTANT]
    return _HISTORY((prefixes, [_digest(chain + answer)], input_hash, False, [], (), False, True))


def _short_history_with_tools(
    rest: list[Message], answer: Message, chain: bytes, before: str, prefixes: list[str]
) -> History:
    """Return a short history whose first messages are plain text.

    Args:
        rest: The messages after them.
        answer: The output.
        chain: The bytes that the first messages add to the hash of the history.
        before: The role of the last of them; '' if there is none.
        prefixes: The beginnings among them that end with the assistant's turn; extended in place.
    """
    # The three histories of `InputHashes`. Two messages that follow each other in `chain` may have
    # messages of tools between them, which `without_tools` lacks.
    without_ids = without_tools = chain
    before_without_tools, reasoning, tool_call_ids = before, b"", NO_IDS
    numbers, has_tools, has_responses, is_paired = ToolCallNumbers(), False, False, True
    for message in rest:
        role, hashes = message["role"], hashes_of(message)
        if role == ASSISTANT:
            tool_call_ids = hashes.tool_call_ids
        elif before == ASSISTANT:
            prefixes.append(_digest(chain))
        head = b"" if role == before == ASSISTANT else HEADS[role]
        before = role
        chain += head + hashes.content
        if hashes.has_tools:
            has_tools = True
            without_ids += head + numbers.of(hashes)
            for call_id in hashes.response_ids:
                has_responses, is_paired = True, is_paired and call_id in tool_call_ids
        else:
            without_ids += head + hashes.content
            continues_turn = role == before_without_tools == ASSISTANT
            without_tools += hashes.content if continues_turn else HEADS[role] + hashes.content
            before_without_tools = role
        if hashes.reasoning:
            reasoning += _digest(without_ids).encode() + hashes.reasoning
    input_hash, unrequested_ids = _digest(without_ids + reasoning), [*numbers.unrequested_ids]
    if before == ASSISTANT:
        prefixes.append(_digest(chain))
    head = b"" if before == ASSISTANT else HEADS[ASSISTANT]
    choice = hashes_of(answer)
    with_answer = [_digest(chain + head + choice.content)]
    # `any_history` says why the answer is added to the other two histories, too.
    if None in choice.tool_call_ids:
        with_answer.append(_digest(without_ids + head + numbers.of(choice)))
    if has_tools and not choice.has_tools:
        head = b"" if before_without_tools == ASSISTANT else HEADS[ASSISTANT]
        with_answer.append(_digest(without_tools + head + choice.content))
    return _HISTORY(
        (
            prefixes,
            [*dict.fromkeys(with_answer)],
            input_hash,
            has_tools or choice.has_tools,
            unrequested_ids,
            choice.tool_call_ids,
            has_responses,
            is_paired,
        )
    )


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _names_tools(call: LlmCall) -> bool:
    turns = [*(call.input_messages or []), *(call.output_messages or [])]
    return any(part.get("id") for turn in turns for part in turn["parts"])
