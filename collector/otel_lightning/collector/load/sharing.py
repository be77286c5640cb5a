"""Divide the loader's time between storing and deriving.

Storing costs less time than deriving, so a loader that always stored first would never derive under
load. So each second of storing adds time that deriving may use next: one second while deriving
keeps up, more the further it lags. Storing becomes slower by that; the spool measures its rate and
slows the senders to it (backpressure). So the lag stays near `--max-lag`; `make bench-lag` measures
it.
"""

LEAST_SHARE, MOST_SHARE = 0.5, 0.95
"""Deriving's share of the loader's time: the least, while it keeps up, and the most."""
MOST_OWED_SECONDS = 15.0
"""Limit on the time owed to deriving, so that storing never waits longer."""


class Sharing:
    """The time that storing owes to deriving, in seconds."""

    def __init__(self, max_lag: float) -> None:
        """Start with nothing owed.

        Args:
            max_lag: Seconds of lag, from receiving to derived rows, to stay near or below.
        """
        self._max_lag = max_lag
        self._owed = 0.0

    @property
    def owes(self) -> bool:
        """Whether deriving comes before the next batch is stored."""
        return self._owed > 0

    def share(self, lag: float) -> float:
        """Return deriving's share of the loader's time, in [0.5, 0.95].

        The share reaches its highest value a little before the lag is half of `max_lag`, because
        senders slow down only some time later.

        Args:
            lag: Seconds that deriving lags now, or is expected to lag after the stored rows.

        Example:
            >>> sharing = Sharing(max_lag=30)
            >>> sharing.share(0), sharing.share(10.5), sharing.share(60)
            (0.5, 0.7, 0.95)
        """
        return min(max(lag / (self._max_lag / 2), LEAST_SHARE), MOST_SHARE)

    def stored(self, seconds: float, lag: float) -> None:
        """Add the time that deriving is owed for `seconds` of storing."""
        share = self.share(lag)
        self._owed = min(self._owed + seconds * share / (1 - share), MOST_OWED_SECONDS)

    def derived(self, seconds: float) -> None:
        """Subtract the time that deriving took."""
        self._owed = max(self._owed - seconds, 0.0)

    def forgive(self) -> None:
        """Set the owed time to 0, because nothing is left to derive."""
        self._owed = 0.0
