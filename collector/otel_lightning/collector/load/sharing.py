"""How the loader divides its time between storing and deriving.

Storing is cheap and deriving is not, so a loader that always stores first never derives under load.
Here each second of storing owes deriving a time of its own: as much again while deriving keeps up,
and more the further it lags. Senders are held to the pace at which both together go on, because
the spool measures how fast it is emptied. So neither lag grows beyond `--max-lag`.
"""

LEAST_SHARE, MOST_SHARE = 0.5, 0.95
"""Deriving's share of the time while it keeps up, and at most."""
MOST_OWED_SECONDS = 15.0
"""What is owed beyond this is forgotten: storing must go on too."""


class Sharing:
    """The time that storing owes to deriving."""

    def __init__(self, max_lag: float) -> None:
        """Owe nothing.

        Args:
            max_lag: Seconds that storing and deriving together may lag behind receiving.
        """
        self._max_lag = max_lag
        self._owed = 0.0

    @property
    def owes(self) -> bool:
        """Whether deriving comes before more is stored."""
        return self._owed > 0

    def share(self, lag: float) -> float:
        """Return deriving's share of the time.

        Args:
            lag: Seconds that deriving lags, or will when it reaches what was stored last.

        Example:
            >>> sharing = Sharing(max_lag=30)
            >>> sharing.share(0), sharing.share(10.5), sharing.share(60)
            (0.5, 0.7, 0.95)
        """
        return min(max(lag / (self._max_lag / 2), LEAST_SHARE), MOST_SHARE)

    def stored(self, seconds: float, lag: float) -> None:
        """Owe deriving its part for what storing took."""
        share = self.share(lag)
        self._owed = min(self._owed + seconds * share / (1 - share), MOST_OWED_SECONDS)

    def derived(self, seconds: float) -> None:
        """Count what deriving took."""
        self._owed = max(self._owed - seconds, 0.0)

    def forgive(self) -> None:
        """Owe nothing: there is nothing to derive."""
        self._owed = 0.0
