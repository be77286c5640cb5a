"""The interface by which the spool asks the loader how much to slow senders."""

from typing import Protocol


class Backpressure(Protocol):
    """How senders are slowed while the loader lags. Called by the spool's thread."""

    def pause(self, size: int) -> float:
        """Return for how many seconds to pause after `size` bytes were acknowledged."""

    def refusal(self) -> str | None:
        """Return why requests are refused at present; None if they are accepted."""
