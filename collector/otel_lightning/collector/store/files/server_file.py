"""The server file beside a store tells clients how to reach the process that holds the store."""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from otel_lightning.collector.files.process_file import runs_still, write_process_file


@dataclass(frozen=True, slots=True)
class Server:
    """Addresses and tokens of the process that holds a store, as in the server file (mode 0600)."""

    pid: int
    sql: str
    token: str
    reader: str
    http: str
    tls_cert: str | None = None
    """Path of the TLS certificate for HTTPS; None for plain HTTP."""
    grpc: str | None = None
    """Address for OTLP over gRPC; None if it takes none."""
    schema: int = 0
    """Schema of the store; 0 if the process is of release 0.1.0, which did not tell it."""


def server_file(path: Path) -> Path:
    """Return the path of a store's server file."""
    return path.with_name(path.name + ".server")


def write_server(path: Path, server: Server) -> None:
    """Write the server file of a store; only its user can read it."""
    write_process_file(server_file(path), json.dumps(asdict(server)))


def read_server(path: Path) -> Server | None:
    """Read the server file of a store; return None if it is missing or its process has ended.

    Fields that a newer version has added are ignored.
    """
    content = _content_of_running(path)
    try:
        return Server(
            **{one.name: content[one.name] for one in fields(Server) if one.name in content}
        )
    except TypeError:  # `is_of_another_version`, or there is no process
        return None


def is_of_another_version(path: Path) -> bool:
    """Return whether a running process has a server file that this version cannot read."""
    return bool(_content_of_running(path)) and read_server(path) is None


def _content_of_running(path: Path) -> dict[str, Any]:
    """Return what the server file says; nothing if there is none or its process has ended."""
    try:
        content: dict[str, Any] = json.loads(server_file(path).read_text())
        runs = runs_still(server_file(path))
        # A process of release 0.1.0 does not lock its file, and some file systems have no locks.
        if runs is None or "schema" not in content:
            os.kill(content["pid"], 0)  # sends no signal, only fails if there is no such process
        elif not runs:
            return {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return content
