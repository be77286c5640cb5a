"""Keep the iterators that an agent passes to the model client."""

from collections.abc import Iterator
from typing import Any, Final

_NAMES: Final = ("messages", "tools", "functions", "input", "prompt", "include")
"""Arguments that openai accepts as any iterable, or that contain iterables."""

_PLAIN: Final = frozenset({str, dict, list, tuple, type(None), int, float, bool})


def as_lists(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace iterators by lists, so that reading the arguments leaves them as they are.

    Args:
        arguments: Keyword arguments of a method of the client; not changed.

    Returns:
        The same object if no argument is an iterator, nor a message's content or tool calls.

    Example:
        >>> as_lists({"messages": iter([{"role": "user", "content": iter(["Hi"])}])})
        {'messages': [{'role': 'user', 'content': ['Hi']}]}
    """
    lists = {}
    for name in _NAMES:
        argument = arguments.get(name)
        value = (
            list(argument)
            if type(argument) not in _PLAIN and isinstance(argument, Iterator)
            else argument
        )
        if type(value) is list or type(value) is tuple:
            value = _with_lists_inside(value)
        if value is not argument:
            lists[name] = value
    return {**arguments, **lists} if lists else arguments


def _with_lists_inside(items: Any) -> Any:
    changed = None
    for position, item in enumerate(items):
        if type(item) is dict and (new := _without_iterators(item)) is not item:
            changed = list(items) if changed is None else changed
            changed[position] = new
    return items if changed is None else changed


def _without_iterators(item: dict[str, Any]) -> dict[str, Any]:
    lists = {
        name: list(value)
        for name, value in item.items()
        if type(value) not in _PLAIN and isinstance(value, Iterator)
    }
    return {**item, **lists} if lists else item
