"""Pages for browsers without a session: sign-in, and requests from other sites."""

import shlex
from html import escape
from http import HTTPStatus
from importlib import resources
from string import Template
from urllib.parse import parse_qs, quote, unquote_plus

from otel_lightning.collector.page.process import Answer
from otel_lightning.collector.page.sessions import Sessions
from otel_lightning.collector.receive.accept import JSON
from otel_lightning.collector.receive.access import SCHEME
from otel_lightning.collector.receive.refusals import RefusedError

ROOT = "/ui"
HTML = "text/html; charset=utf-8"
HOW = (
    "Run this command where lightning-ingest runs. It opens this page with a link that is valid "
    "once, for a minute."
)
FORM = (
    '<form method="post" action="/ui/enter"><label>Or give the token with which lightning-ingest '
    'was started: <input type="password" name="token" autocomplete="current-password" required>'
    "</label> <button>Enter</button></form>"
)


class BrowserAccess:
    """Lets browsers in, and answers those that are not let in."""

    def __init__(self, sessions: Sessions, *, tls: bool) -> None:
        """Guard one page.

        Args:
            sessions: Codes and sessions.
            tls: Whether this server speaks TLS: only then a form asks for the token.
        """
        self._sessions, self._tls = sessions, tls

    def code(self, authorization: str | None) -> Answer:
        """Give a new code to a program that has the store's token.

        Raises:
            RefusedError: If the token is missing or wrong.
        """
        header = authorization or ""
        if not header.lower().startswith(SCHEME) or not self._sessions.opens(header[len(SCHEME) :]):
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "a code is given to who has the store's token: run `lightning-ingest open`.",
            )
        return Answer(HTTPStatus.OK, JSON, b'{"code": "%s"}' % self._sessions.new_code().encode())

    def enter_by_code(self, query: str) -> Answer:
        """Exchange a code for a session, and lead on to the page."""
        parameters = parse_qs(query)
        if not self._sessions.take(parameters.get("code", [""])[0]):
            return _html_answer(
                HTTPStatus.UNAUTHORIZED,
                "This link is no longer valid",
                f"It is valid once, for a minute. {HOW}",
                "<pre>lightning-ingest open</pre>",
            )
        return self._let_in(parameters.get("to", [ROOT])[0])

    def enter_by_token(self, token: str) -> Answer:
        """Exchange the token for a session, over TLS only.

        Raises:
            RefusedError: If the token is wrong, or would be readable on the network.
        """
        # Without TLS the token, which opens the whole store, would cross the network as plain text.
        # A code is worth little there: it is valid once, for a minute.
        if not self._tls:
            raise RefusedError(HTTPStatus.FORBIDDEN, "a token is accepted over TLS only")
        if not self._sessions.opens(token):
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "that is not the token")
        return self._let_in(ROOT)

    def leave(self, cookies: str | None) -> Answer:
        """End a session."""
        self._sessions.forget(cookies)
        cookie = self._sessions.header("", tls=self._tls)
        return Answer(HTTPStatus.SEE_OTHER, HTML, b"", (("location", ROOT), ("set-cookie", cookie)))

    def locked(self, path: str, query: str) -> Answer:
        """Show how to get in."""
        target = quote(path) + (f"?{query}" if query else "")
        command = "lightning-ingest open" + ("" if path == ROOT else f" {shlex.quote(target)}")
        return _html_answer(
            HTTPStatus.UNAUTHORIZED,
            "This page is locked",
            f"It shows the prompts and answers of your agents. {HOW}",
            f"<pre>{escape(command)}</pre>{FORM if self._tls else ''}",
        )

    def from_elsewhere(self, path: str, query: str) -> Answer:
        """Ask before another site's link is followed: it may hold a query that somebody wrote."""
        target = quote(path) + (f"?{query}" if query else "")
        return _html_answer(
            HTTPStatus.OK,
            "A link from another site",
            "Another site's page opens this address. Nothing was read or run yet.",
            f"<pre>{escape(unquote_plus(target))}</pre>"
            f'<p><a class="button" href="{escape(target)}">Open it</a>',
        )

    def _let_in(self, to: str) -> Answer:
        # Only paths of this page: '//host' and '/\\host' would lead to another site.
        inside = to == ROOT or (to.startswith((ROOT + "/", ROOT + "?")) and _is_plain(to))
        cookie = self._sessions.header(self._sessions.new_session(), tls=self._tls)
        headers = (("location", to if inside else ROOT), ("set-cookie", cookie))
        return Answer(HTTPStatus.SEE_OTHER, HTML, b"", headers)


def _is_plain(target: str) -> bool:
    """Return whether a target can be a header's value."""
    return target.isascii() and target.isprintable() and "\\" not in target


def _html_answer(status: HTTPStatus, title: str, text: str, extra: str) -> Answer:
    template = (resources.files(__package__) / "static" / "locked.html").read_text("utf-8")
    body = Template(template).substitute(title=escape(title), text=escape(text), more=extra)
    return Answer(status, HTML, body.encode())
