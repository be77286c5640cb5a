"""Sessions of the page: codes that are valid once, and sessions in memory.

A user who may read the server file of the store (mode 0600) gets a code, opens it in a browser, and
the browser gets a session. A session is not the token: cookies are sent to every port of a host.
(RFC 6265, section 8.5.) Sessions end with this process.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

CODE_SECONDS = 60.0
SESSION_SECONDS = 12 * 3600.0  # without a request
MOST_CODES = 20
MOST_SESSIONS = 50


class Sessions:
    """Codes and sessions; safe for several threads. Only their SHA-256 is kept."""

    def __init__(
        self, tokens: tuple[str, ...], cookie: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin without sessions.

        Args:
            tokens: The tokens that get a code or a session.
            cookie: Name of the cookie; it has to differ between ports of a host.
            clock: Returns seconds that never go back.
        """
        self.cookie = cookie
        self._tokens, self._clock = tokens, clock
        self._codes: dict[str, float] = {}
        self._sessions: dict[str, float] = {}
        self._lock = threading.Lock()

    def opens(self, token: str) -> bool:
        """Return whether a token is one of those that let in, compared in constant time."""
        candidate = token.encode()
        # All tokens are compared, so the duration tells nothing about them.
        matches = [hmac.compare_digest(candidate, accepted.encode()) for accepted in self._tokens]
        return any(matches)

    def new_code(self) -> str:
        """Return a code that one browser can exchange for a session, within a minute."""
        return self._add(self._codes, CODE_SECONDS, MOST_CODES)

    def take(self, code: str) -> bool:
        """Return whether a code is valid. It is not valid a second time."""
        with self._lock:
            # Read and removed in one step: of two requests with the same code, one gets a session.
            return self._codes.pop(_digest(code), 0.0) > self._clock()

    def new_session(self) -> str:
        """Return the secret of a new session, for the cookie."""
        return self._add(self._sessions, SESSION_SECONDS, MOST_SESSIONS)

    def knows(self, cookies: str | None) -> bool:
        """Return whether the header `Cookie` has an open session, and keep that session open."""
        digest = _digest(self._secret(cookies))
        with self._lock:
            if self._sessions.get(digest, 0.0) <= self._clock():
                return False
            self._sessions[digest] = self._clock() + SESSION_SECONDS
            return True

    def forget(self, cookies: str | None) -> None:
        """End the session of the header `Cookie`."""
        with self._lock:
            self._sessions.pop(_digest(self._secret(cookies)), None)

    def header(self, secret: str, *, tls: bool) -> str:
        """Return the header `Set-Cookie` of a session; without a secret, one that deletes it."""
        parts = [f"{self.cookie}={secret}", "Path=/ui", "HttpOnly", "SameSite=Strict"]
        return "; ".join([*parts, *["Secure"] * tls, *["Max-Age=0"] * (not secret)])

    def _secret(self, cookies: str | None) -> str:
        try:
            cookie = SimpleCookie(cookies or "").get(self.cookie)
        except CookieError:
            return ""
        return cookie.value if cookie else ""

    def _add(self, valid_until: dict[str, float], seconds: float, limit: int) -> str:
        secret = secrets.token_urlsafe(32)
        with self._lock:
            now = self._clock()
            for digest in [d for d, end in valid_until.items() if end <= now]:
                del valid_until[digest]
            while len(valid_until) >= limit:
                del valid_until[
                    min(valid_until, key=valid_until.__getitem__)
                ]  # the one that ends first
            valid_until[_digest(secret)] = now + seconds
        return secret


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
