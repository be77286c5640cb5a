"""The server file beside a store tells clients how to reach the process that holds the store."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from otel_lightning.collector.files.atomic import PRIVATE, replaced


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


def server_file(path: Path) -> Path:
    """Return the path of a store's server file."""
    return path.with_name(path.name + ".server")


def write_server(path: Path, server: Server) -> None:
    """Write the server file of a store; only its user can read it."""
    with replaced(server_file(path), PRIVATE) as temporary:
        temporary.write_text(json.dumps(asdict(server)))


def read_server(path: Path) -> Server | None:
    """Read the server file of a store; return None if it is missing or its process has ended."""
    try:
        server = Server(**json.loads(server_file(path).read_text()))
        os.kill(server.pid, 0)  # sends no signal, only fails if there is no such process
    except (OSError, ValueError, TypeError):
        return None
    return server
