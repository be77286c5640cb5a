"""Request token ids, logprobs and token counts, and remove them from the answer again.

The agent gets the same answer as without us: the fields that only we requested are removed from
each response object and chunk.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

TOKENS_VARIABLE: Final = "LIGHTNING_REQUEST_TOKEN_IDS"
"""If `true`, we request token ids and logprobs from the model server."""

USAGE_VARIABLE: Final = "LIGHTNING_REQUEST_USAGE"
"""If `true`, we request token counts of streams, which servers do not send by default."""

_INCLUDED_LOGPROBS: Final = "message.output_text.logprobs"
_RAW_RESPONSE: Final = "X-Stainless-Raw-Response"
"""Header by which openai's client passes on that the agent wants the response itself."""

_IDS: Final = ("prompt_token_ids", "token_ids")
_OFTEN_EMPTY: Final = frozenset({*_IDS, "logprobs", "finish_reason", "content", "usage"})
_SET_BY_PARSE: Final = frozenset({"parsed", "tool_calls"})
"""Fields of a message that openai's `parse` sets to None itself."""


@dataclass(frozen=True, slots=True)
class Additions:
    """The fields that we added to a request."""

    arguments: dict[str, Any]
    """The request's arguments with the additions."""
    ids: bool = False
    logprobs: bool = False
    usage: bool = False


def additions(endpoint: str, kwargs: Mapping[str, Any]) -> Additions | None:
    """Add to a request the fields that the variables enable and the agent did not set.

    Args:
        endpoint: `chat`, `completions` or `responses`.
        kwargs: Arguments of the agent's call; not changed.

    Returns:
        The additions, or None if there are none.
    """
    tokens = os.environ.get(TOKENS_VARIABLE, "").lower() == "true"
    usage = os.environ.get(USAGE_VARIABLE, "").lower() == "true"
    if not (tokens or usage) or _reads_from_the_wire(kwargs):
        return None
    changed = dict(kwargs)
    body = kwargs.get("extra_body") or {}
    ids = tokens and isinstance(body, Mapping) and "return_token_ids" not in body
    if ids:
        # vLLM's name for it; `extra_body` is merged into the JSON of the request.
        changed["extra_body"] = {"return_token_ids": True, **body}
    logprobs = tokens and _ask_logprobs(endpoint, changed)
    options = kwargs.get("stream_options")
    usage = (
        usage
        and endpoint != "responses"
        and kwargs.get("stream") is True
        and not (isinstance(options, dict) and "include_usage" in options)
    )
    if usage:
        own_options = options if isinstance(options, dict) else {}
        changed["stream_options"] = {**own_options, "include_usage": True}
    return Additions(changed, ids, logprobs, usage) if ids or logprobs or usage else None


def _reads_from_the_wire(kwargs: Mapping[str, Any]) -> bool:
    """Return whether the agent uses `with_streaming_response`.

    It then reads the bytes of the answer itself, so we could not remove our additions from them.
    """
    headers = kwargs.get("extra_headers")
    return isinstance(headers, Mapping) and headers.get(_RAW_RESPONSE) == "stream"


def _ask_logprobs(endpoint: str, changed: dict[str, Any]) -> bool:
    if endpoint == "responses":
        include = changed.get("include")
        listed = include if isinstance(include, list | tuple) else ()
        if _INCLUDED_LOGPROBS in listed:
            return False
        changed["include"] = [*listed, _INCLUDED_LOGPROBS]
        return True
    # Any other type is one of openai's markers for an argument that was not given.
    if isinstance(changed.get("logprobs"), bool | int):
        return False
    # A switch on chat completions. On completions it is a number of alternatives; 1 is the least
    # that servers give the chosen token's logprob for.
    changed["logprobs"] = True if endpoint == "chat" else 1
    return True


def strip(added: Additions, part: Any) -> None:
    """Remove from a response object, chunk or event the fields that only we requested.

    Args:
        added: The fields that we requested.
        part: An object of the openai client; changed in place.
    """
    owners = [owner for owner in _owners(part) if _has_tokens(owner)]
    if owners:
        empty = _writes_empty_values(part)
        for owner in owners:
            if added.ids:
                _drop_ids(owner, empty=empty)
            if added.logprobs:
                _drop_logprobs(owner, empty=empty)
    if added.usage and part.__dict__.get("usage", 0) is None:
        _restore(part, "usage", empty=False)


def _has_tokens(owner: Any) -> bool:
    # Read the object's dictionaries, not its attributes: a stream may have a thousand chunks, and
    # pydantic's attribute access is slow.
    extra_fields = owner.__pydantic_extra__
    return owner.__dict__.get("logprobs") is not None or bool(
        extra_fields and ("token_ids" in extra_fields or "prompt_token_ids" in extra_fields)
    )


def is_only_usage(added: Additions, part: Any) -> bool:
    """Return whether a chunk has only token counts, which the server sent because we asked."""
    return added.usage and not part.choices and part.usage is not None


def strip_body(added: Additions, body: bytes) -> bytes:
    """Remove from a response's JSON text the fields that only we requested.

    Args:
        added: The fields that we requested.
        body: The body as it was received.

    Returns:
        The body with the same spacing, or the same bytes if it is not a JSON object.
    """
    try:
        response = json.loads(body)
    except ValueError:
        return body
    if not isinstance(response, dict):
        return body
    empty = _has_empty_values(response)
    for owner in _dicts(response):
        if added.ids:
            for name in _IDS:
                _drop_key(owner, name, empty=empty)
        if added.logprobs:
            _drop_key(owner, "logprobs", empty=empty)
    spaced = b'": ' in body
    separators = (", ", ": ") if spaced else (",", ":")
    # The server either escapes characters beyond ASCII or does not; ours shall look the same.
    ascii_only = body.isascii()
    try:
        return json.dumps(response, separators=separators, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which the server had escaped
        return json.dumps(response, separators=separators).encode()


def _owners(part: Any) -> Iterator[Any]:
    """Yield the objects within a part that can have token ids or logprobs."""
    if "choices" in part.__dict__:  # chat completions and completions
        yield part
        yield from part.choices or ()
        return
    # The last event of a stream has the response, and a response is itself the part.
    response = getattr(part, "response", None) or part
    if response is not part:
        yield part
    yield response
    items = list(getattr(response, "output", None) or ())
    if own_item := getattr(part, "item", None):
        items.append(own_item)
    for item in items:
        yield item
        yield from getattr(item, "content", None) or ()
    if inner := getattr(part, "part", None):
        yield inner


def _dicts(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield response
    yield from response.get("choices") or ()
    for item in response.get("output") or ():
        yield item
        for content in item.get("content") or ():
            if isinstance(content, dict):
                yield content


def _drop_key(owner: dict[str, Any], name: str, *, empty: bool) -> None:
    """Remove a key, or set it to the empty value that this server would send."""
    if name not in owner:
        return
    # A text part of Responses: it always has the list, empty if no logprobs were asked for.
    if name == "logprobs" and "annotations" in owner:
        owner[name] = []
    elif empty or (name == "logprobs" and "text" in owner):
        owner[name] = None
    else:
        del owner[name]


def _drop_ids(owner: Any, *, empty: bool) -> None:
    extra_fields = owner.__pydantic_extra__
    for name in _IDS:
        if extra_fields and name in extra_fields:
            if empty:
                extra_fields[name] = None
            else:
                del extra_fields[name]


def _drop_logprobs(owner: Any, *, empty: bool) -> None:
    if owner.__dict__.get("logprobs") is None:
        return
    fields = owner.__pydantic_fields_set__
    if "annotations" in fields or str(getattr(owner, "type", "")).startswith("response."):
        owner.__dict__["logprobs"] = []
    else:
        # A text completion always has the key.
        _restore(owner, "logprobs", empty=empty or "text" in fields)


def _restore(owner: Any, name: str, *, empty: bool) -> None:
    """Set a field to None; mark it as sent (`null`) if `empty`, else as not sent."""
    owner.__dict__[name] = None
    if not empty:
        owner.__pydantic_fields_set__.discard(name)


def _writes_empty_values(part: Any) -> bool:
    """Return whether the server sends fields without a value as `null`.

    OpenAI and vLLM do; small servers omit such fields. Fields in `_OFTEN_EMPTY`, such as
    `finish_reason` in a stream, are `null` with any server, so they are ignored.
    """
    for choice in part.__dict__.get("choices") or ():
        held = choice.__dict__
        message = held.get("message") or held.get("delta")
        if _nulls(part) or _nulls(choice) or (message is not None and _nulls(message)):
            return True
    return False


def _nulls(owner: Any) -> bool:
    # Loops instead of generators: this runs for each chunk of a stream.
    values = owner.__dict__
    parsed = "parsed" in owner.__pydantic_fields_set__
    for name in owner.__pydantic_fields_set__:
        # 0 stands for "no such field", because None is the value that is looked for.
        if values.get(name, 0) is None and name not in _OFTEN_EMPTY:
            if parsed and name in _SET_BY_PARSE:
                continue
            return True
    extra_fields = owner.__pydantic_extra__
    if extra_fields:
        for name, value in extra_fields.items():
            if value is None and name not in _OFTEN_EMPTY:
                return True
    return False


def _has_empty_values(response: dict[str, Any]) -> bool:
    inner = [choice.get("message") or {} for choice in response.get("choices") or ()]
    return "choices" in response and any(
        value is None
        for owner in (response, *response["choices"], *inner)
        for name, value in owner.items()
        if name not in _OFTEN_EMPTY
    )
