"""The numbers of `/metrics` that are read when somebody asks."""

import math

from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.serve.logs import dropped_lines
from otel_lightning.collector.serve.watches.supervision import Supervisor
from otel_lightning.collector.spool.spool import Spool


def gauges(spool: Spool, loader: Loader, supervisor: Supervisor) -> dict[str, float]:
    """Return a value for each name in `GAUGES`."""
    try:
        oldest = supervisor.oldest_ns()
    except OSError:  # an alarm reports it: the other gauges have to be answered all the same
        unstored = math.nan
    else:
        unstored = loader.lag.age(oldest)
    underived = loader.lag.derive_seconds()
    return {
        "spool_backlog_bytes": spool.backlog(),
        "loader_lag_seconds": max(unstored, underived),  # NaN if `unstored` is
        "derive_lag_seconds": underived,
        "repeated_ids": loader.repeated_ids,
        "ids_to_read": loader.ids_to_read,
        "worker_restarts": loader.worker_restarts,
        "thread_failures": supervisor.thread_failures,
        "derive_retries": loader.derive_retries,
        "dropped_log_lines": dropped_lines(),
        "requests_read_again": loader.recovered_requests.stored,
        "former_end_seconds": supervisor.former_end_seconds,
    }
