"""The errors of learning that a user can correct: unusable data, and refusals of a gate."""

from typing import TYPE_CHECKING

from otel_lightning.collector.terminal.next_command import next_command

if TYPE_CHECKING:
    from otel_lightning.collector.store import StoreLike


class DataError(ValueError):
    """Learning cannot use the data or the settings; the message says why, and what to do next."""


class MissingFileError(DataError):
    """There is no file at a path that the user named; a command then ends with exit code 2."""


class RefusedError(Exception):
    """No gate passed a policy or a model against the live one; the message gives the reason."""


def no_transitions(store: "StoreLike") -> DataError:
    """Return the error that says which command builds the missing transitions."""
    return DataError(
        "The store has no transitions, so there is nothing to learn from. Build them with: "
        f"{next_command('lightning-learn transitions', store)}"
    )
