"""The file beside a store that tells other processes how to reach the one that holds it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from otel_lightning.collector.atomic_file import PRIVATE, replaced


@dataclass(frozen=True, slots=True)
class Server:
    """Where the process that holds a store answers, as written beside the store (mode 0600)."""

    pid: int
    sql: str
    token: str
    reader: str
    http: str
    tls_cert: str | None = None
    """The certificate that HTTP is served with; None where it is plain."""


def server_file(path: Path) -> Path:
    """Where the process that holds a store says how to reach it."""
    return path.with_name(path.name + ".server")


def write_server(path: Path, server: Server) -> None:
    """Say how to reach the process that holds the store; only its user can read that."""
    with replaced(server_file(path), PRIVATE) as temporary:
        temporary.write_text(json.dumps(asdict(server)))


def read_server(path: Path) -> Server | None:
    """The process that holds the store, or None if none that lives has said so."""
    try:
        server = Server(**json.loads(server_file(path).read_text()))
        os.kill(server.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return server
