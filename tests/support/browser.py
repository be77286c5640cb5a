"""A browser's requests by hand, and the real Chromium where the machine has it."""

import http.client
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otel_lightning.collector.page.link import page_link
from support.otlp_client import Reply
from support.running import LIMIT_S, Ingester

CHROMIUM = shutil.which("chromium")


def link(ingester: Ingester, *target: str) -> str:
    """The link that `lightning-ingest open` prints."""
    return page_link(ingester.store, target[0] if target else None, None)


def ask(
    ingester: Ingester, path: str, *, method: str = "GET", body: bytes = b"", **headers: str
) -> Reply:
    """Send one request as a browser would; no redirect is followed."""
    connection = http.client.HTTPConnection(ingester.http, timeout=LIMIT_S)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        received = {key.lower(): value for key, value in answer.getheaders()}
        return Reply(answer.status, received, answer.read())
    finally:
        connection.close()


def session(ingester: Ingester) -> str:
    """The header `Cookie` of a browser that was let in."""
    entered = ask(ingester, link(ingester).partition(ingester.http)[2])
    return entered.headers["set-cookie"].partition(";")[0]


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # --no-sandbox: tests may run as root, as in containers.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
