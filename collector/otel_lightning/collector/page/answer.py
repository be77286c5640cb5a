"""Requests under `/ui`: who may read, and which process writes the answer."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

from granian._granian import RSGIProtocolClosed

from otel_lightning.collector.page.browser_access import BrowserAccess
from otel_lightning.collector.page.live import Live
from otel_lightning.collector.page.process import PROCESSES, Answer, PageError, Pages, Request
from otel_lightning.collector.page.sessions import Sessions
from otel_lightning.collector.receive.accept import (
    DURABLE_SECONDS,
    JSON,
    Receiver,
    accept_feedback,
)
from otel_lightning.collector.receive.access import READING, BrowserRequest
from otel_lightning.collector.receive.http.application import asked_by
from otel_lightning.collector.receive.http.disconnects import while_client_waits
from otel_lightning.collector.receive.refusals import RefusedError, refusal_of
from otel_lightning.collector.store.clients.cancellation import Cancellation

logger = logging.getLogger(__name__)

ROOT = "/ui"
PLAIN = "text/plain; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types page"
)
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
)
STATIC = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
BODY_BYTES = 1024 * 1024
MOST_WAITING = 16
"""Most requests that wait for a page process; more are answered with 503."""


@dataclass(frozen=True)
class Access:
    """How a browser gets in."""

    sessions: Sessions
    tls: bool
    needs_client: bool
    """Whether TLS asks for a client certificate: then the certificate is enough."""


class Page:
    """Answers all requests under `/ui`."""

    def __init__(
        self, receiver: Receiver, access: Access, pages: Pages, facts: Mapping[str, Any]
    ) -> None:
        """Answer for one receiver.

        Args:
            receiver: The spool for judgements, the access check and the counters.
            access: Codes, sessions, and what TLS asks for.
            pages: The processes that write pages.
            facts: Facts of the process that pages show, such as its address.
        """
        self._receiver, self._access, self._pages, self._facts = receiver, access, pages, facts
        # As many threads as page processes: a further one would only wait for a process.
        self._threads = ThreadPoolExecutor(PROCESSES, thread_name_prefix="page")
        self._waiting = threading.BoundedSemaphore(PROCESSES + MOST_WAITING)
        self._live = Live(receiver.counts, self._latest)
        self._browser_access = BrowserAccess(access.sessions, tls=access.tls)

    def owns(self, path: str) -> bool:
        """Return whether a path is one of the page's."""
        return path in ("/", ROOT) or path.startswith(ROOT + "/")

    def close(self) -> None:
        """End live streams and page processes."""
        self._live.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pages.close()

    async def answer(self, scope: Any, protocol: Any) -> None:
        """Answer one request."""
        try:
            answer = await self._answer(scope, protocol)
        except RSGIProtocolClosed:
            return
        except PageError as error:
            logger.warning("%s %s: %s", scope.method, scope.path, error)
            answer = _text(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except Exception as error:  # noqa: BLE001  every failure has its answer
            refusal = refusal_of(error)
            answer = _text(refusal.status, str(refusal))
        if answer is None:
            return  # a stream that has ended
        headers = [("content-type", answer.content_type), *HEADERS, *answer.headers]
        body = b"" if scope.method == "HEAD" else answer.body
        with suppress(RSGIProtocolClosed):
            protocol.response_bytes(int(answer.status), headers, body)

    async def _answer(self, scope: Any, protocol: Any) -> Answer | None:
        browser = asked_by(scope)
        self._receiver.guard.check_names(browser.host, browser.origin)
        path = scope.path.rstrip("/") or "/"
        name = path.removeprefix(ROOT + "/")
        if path == "/":
            return _redirect(ROOT)
        # Style, script and icon are also for the locked page, so they need no session.
        if name in STATIC and browser.method in READING:
            return _static(name)
        # Before `check_site`, which would refuse it: a link in a ticket, for example, should still
        # lead here.
        if _is_link_from_elsewhere(scope, browser):
            return self._browser_access.from_elsewhere(path, scope.query_string)
        self._receiver.guard.check_site(browser, tls=self._access.tls)
        if name in ("code", "enter"):
            return await self._let_in(name, scope, protocol)
        if not (
            self._access.needs_client or self._access.sessions.knows(scope.headers.get("cookie"))
        ):
            return self._browser_access.locked(path, scope.query_string)
        return await self._answer_known(name, scope, protocol)

    async def _answer_known(self, name: str, scope: Any, protocol: Any) -> Answer | None:
        """Answer a browser that is let in."""
        if scope.method == "POST":
            return await self._post(name, scope, protocol)
        if scope.method not in READING:
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{scope.method} is not GET")
        if name == "live":
            await self._live.stream(protocol, HEADERS)
            return None
        return await self._write("/" + name.removeprefix(ROOT), scope.query_string, protocol)

    async def _let_in(self, name: str, scope: Any, protocol: Any) -> Answer:
        if name == "code" and scope.method == "POST":
            return self._browser_access.code(scope.headers.get("authorization"))
        if name == "code" or scope.method not in ("GET", "POST"):  # HEAD must not use a code up
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"not by {scope.method}")
        if scope.method == "GET":
            return self._browser_access.enter_by_code(scope.query_string)
        fields = parse_qs((await _body(scope, protocol)).decode(errors="replace"))
        return self._browser_access.enter_by_token(fields.get("token", [""])[0])

    async def _post(self, name: str, scope: Any, protocol: Any) -> Answer:
        if name == "leave":
            return self._browser_access.leave(scope.headers.get("cookie"))
        if name != "feedback":
            raise RefusedError(HTTPStatus.NOT_FOUND, f"no such path '{scope.path}'")
        content_type = scope.headers.get("content-type", "").split(";")[0].strip().lower()
        # A form of another site cannot send this type without asking first (CORS), and that is
        # never allowed.
        if content_type != JSON:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {JSON}")
        self._receiver.check_alarms()
        body = await _body(scope, protocol)
        accepted = await asyncio.to_thread(accept_feedback, self._receiver.spool, body)
        await accepted.until_durable()
        self._receiver.counts.stored("http", "feedback", accepted.records, accepted.rejected)
        return Answer(HTTPStatus.OK, JSON, json.dumps(accepted.response).encode())

    async def _write(self, path: str, query: str, protocol: Any) -> Answer:
        facts = {**self._facts, **self._live.facts(), **self._receiver.gauges()}
        facts["alarms"] = [alarm.reason for alarm in self._receiver.alarms.raised()]
        cancellation = Cancellation()
        work = self._in_thread(lambda: self._pages.write(Request(path, query, facts), cancellation))
        answer: Answer = await while_client_waits(protocol, work, cancellation)
        return answer

    async def _latest(self) -> dict[str, Any]:
        counts = await self._in_thread(lambda: self._pages.ask("live", {}))
        return dict(counts.to_pylist()[0])

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Run blocking work in the threads of the page, not in those that receiving uses."""
        if not self._waiting.acquire(blocking=False):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages at once")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting.release()


def _is_link_from_elsewhere(scope: Any, browser: BrowserRequest) -> bool:
    """Return whether another site's page opens this one, by a link or a redirect."""
    is_navigation = scope.headers.get("sec-fetch-mode") == "navigate"
    is_top = scope.headers.get("sec-fetch-dest") == "document"
    foreign = browser.site in ("cross-site", "same-site")
    return foreign and scope.method == "GET" and is_navigation and is_top


async def _body(scope: Any, protocol: Any) -> bytes:
    declared = scope.headers.get("content-length", "")
    if not declared.isdigit():
        raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "send Content-Length")
    if int(declared) > BODY_BYTES:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request is larger than {BODY_BYTES} bytes"
        )
    async with asyncio.timeout(DURABLE_SECONDS):
        return bytes(await protocol())


def _static(name: str) -> Answer:
    body = (resources.files(__package__) / "static" / name).read_bytes()
    return Answer(HTTPStatus.OK, STATIC[name], body)


def _redirect(to: str) -> Answer:
    return Answer(HTTPStatus.SEE_OTHER, PLAIN, b"", (("location", to),))


def _text(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, PLAIN, text.encode())
