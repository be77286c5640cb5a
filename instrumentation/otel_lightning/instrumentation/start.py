"""Start tracing without a launcher: the `.pth` file of our wheel calls this when Python starts.

The `.pth` file calls it if a variable of `ASKING` is set, or if the process runs under
`opentelemetry-instrument`. It repeats the names, since it must import nothing to look at them. This
module imports only `os` and `sys`, which Python has loaded already, until one of these variables
requests tracing: `typing` alone takes longer than the rest.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in `typing`, which is not imported here
if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence
    from typing import Final

SWITCH: Final = "LIGHTNING_INSTRUMENT"
"""`true` starts tracing without any other variable; `false` prevents it."""

ASKING: Final = (
    SWITCH,
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_SERVICE_NAME",
    "LIGHTNING_ROLLOUT_ID",
    "LIGHTNING_TASK_ID",
    "LIGHTNING_REQUEST_TOKEN_IDS",
    "LIGHTNING_POLICY",
)
"""Variables that request tracing. Others, such as `LIGHTNING_STORE`, configure our commands."""

GRPC: Final = "grpc"
HTTP: Final = "http/protobuf"

_NOT_AGENTS: Final = frozenset(
    {
        "lightning-ingest",
        "lightning-learn",
        "opentelemetry-bootstrap",
        "opentelemetry-instrument",
        "otel_lightning.collector",
        "otel_lightning.learner",
        "pip",
        "pip3",
        "uv",
        "venv",
    }
)
"""Programs that are not traced: they start agents, receive telemetry or install packages."""

_TAKE_A_VALUE: Final = ("-X", "-W", "--check-hash-based-pycs")
_LAUNCHER_FOLDER: Final = "auto_instrumentation"
_started: list[bool] = []
"""Not empty once `start` has run in this process."""


def start() -> None:
    """Instrument this process, once, if a variable requests it."""
    if _started:  # Python reads the .pth files of a virtual environment twice
        return
    _started.append(True)
    environment = os.environ
    if not is_asked(environment) or program(sys.orig_argv) in _NOT_AGENTS:
        return
    set_defaults(environment)
    # The launcher puts this folder first on the path, with a `sitecustomize` that starts
    # everything.
    if _LAUNCHER_FOLDER in environment.get("PYTHONPATH", ""):
        return  # the process runs under opentelemetry-instrument, which starts us later
    from opentelemetry.instrumentation.auto_instrumentation import initialize

    initialize()


def is_asked(environment: MutableMapping[str, str]) -> bool:
    """Return whether the environment requests tracing.

    Args:
        environment: The variables of the process.

    Example:
        >>> is_asked({"LIGHTNING_STORE": "traces.duckdb"})
        False
        >>> is_asked({"OTEL_SERVICE_NAME": "desk"})
        True
        >>> is_asked({"OTEL_SERVICE_NAME": "desk", "OTEL_SDK_DISABLED": "true"})
        False
    """
    if environment.get(SWITCH, "").lower() in ("false", "0", "no", "off"):
        return False
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    launched = _LAUNCHER_FOLDER in environment.get("PYTHONPATH", "")
    return launched or any(environment.get(name) for name in ASKING)


def set_defaults(environment: MutableMapping[str, str]) -> None:
    """Set defaults for OpenTelemetry's variables before its SDK reads them.

    Args:
        environment: The variables of the process; changed in place.

    Example:
        >>> variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
        >>> set_defaults(variables)
        >>> variables["OTEL_METRICS_EXPORTER"], variables["OTEL_EXPORTER_OTLP_PROTOCOL"]
        ('none', 'http/protobuf')
    """
    if "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT" not in environment:
        environment.setdefault("OTEL_METRICS_EXPORTER", "none")
    # A killed process loses the records that were not sent yet: those of the last second.
    environment.setdefault("OTEL_BSP_SCHEDULE_DELAY", "1000")
    environment.setdefault("OTEL_BLRP_SCHEDULE_DELAY", "1000")
    for signal in ("", "TRACES_", "LOGS_", "METRICS_"):
        _correct_protocol(environment, f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL")
        if _speaks_http(environment.get(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT", "")):
            environment.setdefault(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL", HTTP)


def _correct_protocol(environment: MutableMapping[str, str], name: str) -> None:
    """Replace a protocol that OpenTelemetry's SDK refuses: it would record nothing at all."""
    protocol = environment.get(name, "").strip()
    if protocol in ("", GRPC, HTTP):
        return
    environment[name] = HTTP if protocol.lower().startswith("http") else GRPC
    sys.stderr.write(
        f"{name}={protocol} is unknown to OpenTelemetry's Python SDK, so {environment[name]} is "
        f"used. Known: {GRPC}, {HTTP}.\n"
    )


def _speaks_http(endpoint: str) -> bool:
    """Return whether an endpoint has the port for OTLP over HTTP, or a path, as gRPC has none."""
    address = endpoint.strip().rpartition("://")[2].rstrip("/")
    return address.endswith(":4318") or "/" in address


def program(command: Sequence[str]) -> str:
    """Return the name of the script or module that a Python command line runs.

    Args:
        command: The whole command line, as in `sys.orig_argv`.

    Example:
        >>> program(["python3", "-X", "dev", "/opt/bin/lightning-ingest", "serve"])
        'lightning-ingest'
        >>> program(["python3", "-m", "pip", "list"])
        'pip'
        >>> program(["python3", "-c", "print()"])
        ''
    """
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word == "-c":
            return ""
        if word in _TAKE_A_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return os.path.basename(word)  # noqa: PTH119 - no pathlib here
    return ""
