"""Write the command that a message tells the user to give next, so that it works when pasted."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_lightning.collector.store import Store

DEFAULT_STORE = "traces.duckdb"


def next_command(
    command: str, store: "Store | str | Path | None", **options: str | Path | None
) -> str:
    """Write a command with its options, quoted for a shell.

    Nothing may follow it in the message, not even a full stop, which would be pasted too.

    Args:
        command: The program and its command, such as `lightning-learn promote`.
        store: The store, or its path; `--store` is left out if it is the default one.
        options: Value of each option; those that are None are left out.

    Example:
        >>> next_command("lightning-learn promote", "my traces.duckdb", key="prompt")
        "lightning-learn promote --store 'my traces.duckdb' --key prompt"
    """
    path = store if store is None or isinstance(store, str | Path) else store.path
    named = None if str(path) == DEFAULT_STORE else path
    words = [
        word
        for name, value in {"store": named, **options}.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", shlex.quote(str(value)))
    ]
    return " ".join([command, *words])
