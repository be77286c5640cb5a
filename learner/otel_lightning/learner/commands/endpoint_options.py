"""Options of the commands that ask a model behind an OpenAI-compatible API: `judge`, `prompts`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.learner.commands.common import FILE, Command, option
from otel_lightning.learner.commands.values import Finite

if TYPE_CHECKING:
    from otel_lightning.learner.score.judges.endpoint import Endpoint

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "--endpoint": {
        "metavar": "URL",
        "required": True,
        "help": "Base URL of an OpenAI-compatible API, such as http://127.0.0.1:8000/v1.",
    },
    "--model": {
        "metavar": "NAME",
        "required": True,
        "help": "Name of the model, as the endpoint knows it.",
    },
    "--temperature": {
        "type": Finite(0),
        "help": "Sampling temperature.  [default: the model's]",
    },
    "--concurrency": {
        "type": click.IntRange(1),
        "default": 8,
        "help": "Number of requests that run at once.",
    },
    "--retries": {
        "type": click.IntRange(0),
        "default": 5,
        "help": "Number of retries of a failed request; the wait grows with each.",
    },
    "--timeout": {
        "type": Finite(1),
        "default": 120.0,
        "help": "Seconds to wait for an answer before the request counts as failed.",
    },
    "--cache": {
        "type": FILE,
        "help": "File with the cached answers, so that none is paid for twice.  [default: "
        "STORE.judge]",
    },
}


def endpoint_options(command: str, **changes: dict[str, Any]) -> Callable[[Command], Command]:
    """Declare the options of a command that asks a model.

    Args:
        command: Name of the command, which their variables have.
        changes: Attributes that differ in this command, by the option's name without dashes.
    """

    def declare(function: Command) -> Command:
        for name, attributes in reversed(ATTRIBUTES.items()):
            differing = changes.get(name.removeprefix("--"), {})
            function = option(name, command=command, **{**attributes, **differing})(function)
        return function

    return declare


def endpoint_of(settings: dict[str, Any]) -> "Endpoint":
    """Take the options of an endpoint out of the options of a command."""
    from otel_lightning.learner.score.judges.endpoint import Endpoint

    names = ("endpoint", "model", "temperature", "retries", "timeout")
    return Endpoint(*(settings.pop(name) for name in names))
