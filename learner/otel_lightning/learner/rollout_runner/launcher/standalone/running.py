"""A process that runs, and the record of its end."""

from __future__ import annotations

import time

from .process_tree import descends_from

TYPE_CHECKING = False  # as in `main.py`
if TYPE_CHECKING:
    from typing import Any

    from .pipes import Pipes

ROLLOUT, WORKER = "LIGHTNING_ROLLOUT_ID", "LIGHTNING_RUN_WORKER"


class Running:
    """One process that has started and not ended."""

    def __init__(
        self, spec: dict[str, Any], pid: int, started_ns: int, deadline: float | None
    ) -> None:
        self.spec, self.pid, self.started_ns, self.deadline = spec, pid, started_ns, deadline
        self.status = "exited"
        """Status to report at its end: another one if this process ends it."""
        self.kill_at: float | None = None
        """Time of SIGKILL, as `time.monotonic` returns it; None before SIGTERM was sent."""
        self.pipes: Pipes | None = None
        """Standard input and output of a worker."""
        self.attempt: dict[str, Any] | None = None
        """Attempt that a worker works on; `started_ns` and `deadline` are then the attempt's."""
        self.is_leaving = False
        """Whether it may end by itself, and is interrupted at its deadline."""

    def owns(self, pid: int) -> bool:
        """Return whether a process descends from this one."""
        return descends_from(pid, self.pid, self.variable)

    @property
    def variable(self) -> bytes:
        """`NAME=value` in the environment of this process and of those that it starts."""
        name = ROLLOUT if self.pipes is None else WORKER
        return f"{name}={self.spec['id']}".encode()

    @property
    def is_service(self) -> bool:
        """Whether agents need it, so that it ends after them."""
        return bool(self.spec.get("service"))


def unstarted(spec: dict[str, Any], started_ns: int, error: OSError | ValueError) -> dict[str, Any]:
    """Return the record of a process that could not be started, with the reason in words."""
    reason = getattr(error, "strerror", None) or str(error)  # without the system's number
    name = getattr(error, "filename", None)
    reason = f"'{name}': {reason}" if name else reason
    return end_record(spec, "not_started", started_ns, reason=reason)


def end_record(
    spec: dict[str, Any], status: str, started_ns: int, **details: Any
) -> dict[str, Any]:
    """Return how a process or an attempt ended, with the fields of `Ended` of the runner."""
    defaults = {"exit_code": None, "signal": None, "left": 0, "cpu_seconds": 0.0, "reason": None}
    times = {"started": started_ns, "ended": time.time_ns()}
    service = {"service": True} if spec.get("service") else {}
    return {"rollout_id": spec["id"], "status": status, **times, **defaults, **details, **service}
