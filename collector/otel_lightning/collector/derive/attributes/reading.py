"""Typed values of attributes, which the store keeps as text: numbers, lists, names and ids."""

from functools import lru_cache
from typing import Any

from otel_lightning.collector.derive.attributes import spellings
from otel_lightning.collector.derive.attributes.compiled_fields import Field
from otel_lightning.collector.derive.rows import Attributes
from otel_lightning.collector.derive.text import json_text

LARGEST, LARGEST_TOKEN = 2**63, 2**31
"""Exclusive upper bounds of a count (a BIGINT column) and of a token id (an INTEGER column)."""
LONGEST_COUNT = 100
"""Limit in characters: a text of this length or more is not parsed as a number."""


def text(attributes: Attributes, *keys: str) -> str | None:
    """Return the first of these attributes that is present and not empty."""
    for key in keys:
        if value := attributes.get(key):
            return value
    return None


def provider(attributes: Attributes, *keys: str) -> str | None:
    """Return the provider's name in lower case, as the conventions write it.

    Example:
        >>> provider({"gen_ai.system": "OpenAI"}, "gen_ai.provider.name", "gen_ai.system")
        'openai'
    """
    name = text(attributes, *keys)
    return name and name.lower()


def integer(attributes: Attributes, *keys: str) -> int | None:
    """Return the first of these attributes that holds a whole number."""
    return _first_integer(*filter(None, map(attributes.get, keys)))


def one_integer(*keys: str) -> Field:
    """Return a field that is the first of these attributes that holds a whole number."""
    return Field(keys, _first_integer)


def _first_integer(*texts: str) -> int | None:
    for text in texts:
        if len(text) < LONGEST_COUNT and (count := _whole(text)) is not None:
            return count
    return None


@lru_cache(maxsize=4096)
def _whole(text: str) -> int | None:
    """Return the whole number that a text holds, or None. Cached, because counts repeat."""
    value = json_text.parse(text)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if is_count(value) else None


def is_count(value: object) -> bool:
    """Return whether a value is a whole number that a column can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def count(value: object) -> int | None:
    """Return a count that is a number, or a text that holds one; None for any other value."""
    if type(value) is int and -LARGEST < value < LARGEST:  # as most are
        return value
    if isinstance(value, str | float) and len(str(value)) < LONGEST_COUNT:
        return _whole(str(value))
    return value if is_count(value) else None  # type: ignore[return-value]


def array(attributes: Attributes, key: str) -> list[Any] | None:
    """Return the value of an attribute that is a non-empty array, or None for any other."""
    text = attributes.get(key)
    return parsed_array(text) if text else None


def parsed_array(text: str) -> list[Any] | None:
    """Return the value of a text that is a non-empty array, or None for any other."""
    value = json_text.parse(text)
    return value if isinstance(value, list) and value else None


def token_ids(value: object) -> list[int] | None:
    """Return the value if it is a non-empty list of token ids, otherwise None."""
    if not isinstance(value, list) or not value:
        return None
    return value if all(is_count(one) and 0 <= one < LARGEST_TOKEN for one in value) else None


def logprobs(value: object) -> list[float] | None:
    """Return the value as floats if it is a non-empty list of log probabilities, otherwise None."""
    if not isinstance(value, list) or not value:
        return None
    known = [float(one) for one in value if isinstance(one, int | float)]
    return known if len(known) == len(value) else None


def conversation_id(attributes: Attributes) -> str | None:
    """Return the conversation id that a span or event states, if any."""
    return text(attributes, *spellings.CONVERSATION) if attributes else None
