"""`lightning-ingest open`: a link to the page that is valid once."""

import json
import os
import sys
import webbrowser
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlencode

from otel_lightning.collector.ingester_client.http import connected
from otel_lightning.collector.store import Server, StoreError, read_server
from otel_lightning.collector.store.answering import Client, reachable
from otel_lightning.collector.terminal.next_command import next_command

TIMEOUT_SECONDS = 10


def page_link(store: Path, target: str | None, client: Client | None) -> str:
    """Ask the running ingester for a code, and return the link with it.

    Args:
        store: The store, whose server file only its user can read.
        target: The page to show: a path below `/ui`, or the id of a rollout. None shows the first.
        client: Client certificate and its key, if the ingester requires one.

    Raises:
        StoreError: If no ingester runs, or it has no page.
    """
    server = read_server(store)
    if server is None:
        start = next_command("lightning-ingest", store)
        raise StoreError(
            f"No lightning-ingest serves '{store}'. Start `{start}`, or name another store with "
            f"--store."
        )
    parameters = {"code": _code(server, client)} | ({"to": _path(target)} if target else {})
    return f"{'https' if server.tls_cert else 'http'}://{reachable(server)}/ui/enter?{urlencode(parameters)}"


def has_browser() -> bool:
    """Return whether a browser with a window can be started from here."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def start_browser(link: str) -> bool:
    """Open a link in the user's browser; return whether one was found."""
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False


def _path(target: str) -> str:
    if target == "/ui" or target.startswith("/ui/"):
        return target
    # Quoted twice: the HTTP server unquotes a path before it is taken apart.
    return f"/ui/rollouts/{quote(quote(target, safe=''))}"


def _code(server: Server, client: Client | None) -> str:
    address = reachable(server)
    with connected(server, client, TIMEOUT_SECONDS) as connection:
        headers = {"Authorization": f"Bearer {server.token}", "Content-Length": "0"}
        connection.request("POST", "/ui/code", b"", headers)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status == HTTPStatus.NOT_FOUND:
        raise StoreError(
            f"lightning-ingest at {address} has no page: start it with --page, which needs a token "
            f"or client certificates where others reach it."
        )
    if answer.status != HTTPStatus.OK:
        raise StoreError(f"lightning-ingest at {address} refused: {body.decode(errors='replace')}")
    return str(json.loads(body)["code"])
