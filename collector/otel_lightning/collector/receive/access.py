"""Access control: bearer tokens, and the names under which clients may call this server.

A web page in a browser on this machine can send requests to loopback. The browser sets Host and
Origin, and the page cannot change them. So both must be names of this server, which prevents DNS
rebinding. No answer has a CORS header.
"""

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from otel_lightning.collector.receive.refusals import RefusedError

SCHEME = "bearer "
READING = frozenset({"GET", "HEAD"})
PORTS = {"http": 80, "https": 443}


class BrowserRequest(NamedTuple):
    """The request of a browser: its method, and the headers that tell where it comes from."""

    method: str
    host: str | None
    origin: str | None
    site: str | None


@dataclass(frozen=True)
class AccessGuard:
    """The accepted tokens (none: no token is required) and the allowed host names."""

    # Not in `repr`, so that no log shows a token.
    tokens: tuple[str, ...] = field(default=(), repr=False)
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tokens: tuple[str, ...], listening: Iterable[str], allowed: Iterable[str]) -> Self:
        """Allow the addresses in `listening` and the names in `allowed`."""
        return cls(tokens, frozenset(map(_normalized, (*listening, *allowed))))

    def admit(self, authorization: str | None) -> None:
        """Check a bearer token.

        Raises:
            RefusedError: If a token is required and this one is not accepted.
        """
        if not self.tokens:
            return
        header = (authorization or "").encode()
        is_bearer = header[: len(SCHEME)].lower() == SCHEME.encode()
        secret = header[len(SCHEME) :].strip()
        # All tokens are compared in constant time, so the duration tells nothing about them.
        matches = [hmac.compare_digest(secret, token.encode()) for token in self.tokens]
        if not is_bearer or not any(matches):
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "a token is needed: send the header 'Authorization: Bearer …' with the one that "
                "lightning-ingest was started with.",
            )

    def check_names(self, host: str | None, origin: str | None) -> None:
        """Check that a request was meant for this server.

        Raises:
            RefusedError: If its Host or Origin is not a name of this server.
        """
        for header, name in (("Host", host_name(host)), ("Origin", origin_name(origin))):
            if name is not None and not self._is_ours(name):
                raise RefusedError(
                    HTTPStatus.FORBIDDEN,
                    f"{header} '{name}' is not a name of this server. "
                    f"Start lightning-ingest with --allowed-host {name} if it should be.",
                )

    def check_site(self, request: "BrowserRequest", *, tls: bool) -> None:
        """Check that no other site's page made a request, by the two headers a browser sets.

        `Sec-Fetch-Site` decides; browsers that send none send `Origin` with a POST. Programs send
        neither header. Names alone would not do: a page on another port of this machine has our
        host name in its Origin.

        Args:
            request: The headers of the request.
            tls: Whether this server speaks TLS.

        Raises:
            RefusedError: If another site made it.
        """
        if request.site:
            # `none` is an address that the user typed, or a bookmark.
            own = request.site == "same-origin" or (
                request.site == "none" and request.method in READING
            )
        else:
            own = not request.origin or self._is_own_origin(request.origin, request.host, tls=tls)
        if not own:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                f"the request comes from another site's page (Sec-Fetch-Site "
                f"'{request.site or ''}', Origin '{request.origin or ''}'): only pages of this "
                f"server's own scheme, host and port may send it.",
            )

    def _is_own_origin(self, origin: str, host: str | None, *, tls: bool) -> bool:
        scheme, _, address = origin.partition("://")
        own = "https" if tls else "http"
        # A proxy in front may end TLS; it has a name that the user allowed.
        proxied = scheme == "https" and _normalized(host_name(host) or "") in self.hosts
        if scheme != own and not proxied:
            return False
        name, port = with_port(address, scheme)
        return name is not None and (name, port) == with_port(host or "", scheme)

    def _is_ours(self, name: str) -> bool:
        name = _normalized(name)
        if name in self.hosts or is_loopback(name):
            return True
        # DNS rebinding needs a name, not an address. On a wildcard address, such as 0.0.0.0,
        # the server listens on every address of this machine.
        return is_address(name) and any(map(is_wildcard, self.hosts))


def is_host(text: str) -> bool:
    """Return whether a text is a host name or an IP address, without scheme, port and path.

    Example:
        >>> is_host("traces.example"), is_host("[::1]"), is_host("traces.example:4318")
        (True, True, False)
    """
    return re.fullmatch(r"[\w.-]+", text) is not None or is_address(text.strip("[]"))


def _normalized(name: str) -> str:
    """Write a host name as one that stands for all of its spellings.

    A name that ends in a dot is absolute (RFC 1034, section 3.1): no search domain is tried.
    """
    return name.lower().strip("[]").removesuffix(".")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host name or address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)


def is_wildcard(host: str) -> bool:
    """Return whether an address stands for all addresses of this machine, such as 0.0.0.0."""
    return is_address(host) and ip_address(host).is_unspecified


def is_address(host: str) -> bool:
    """Return whether a host is an IP address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def with_port(address: str, scheme: str) -> tuple[str | None, int | None]:
    """Return host and port of `HOST[:PORT]`; without a port, the one of the scheme.

    Example:
        >>> with_port("Localhost", "http"), with_port("[::1]:4318", "http")
        (('localhost', 80), ('::1', 4318))
    """
    try:
        parts = urlsplit(f"//{address}")
        return parts.hostname, parts.port or PORTS.get(scheme)
    except ValueError:
        return None, None


def host_name(host: str | None) -> str | None:
    """Return the name in a Host header, without its port.

    Example:
        >>> host_name("[::1]:4318"), host_name("Collector:4318"), host_name(None)
        ('::1', 'collector', None)
    """
    return origin_name(f"//{host}") if host else None


def origin_name(origin: str | None) -> str | None:
    """Return the host name in an Origin header; without one, such as "null", the header itself."""
    if not origin:
        return None
    try:
        return urlsplit(origin).hostname or origin
    except ValueError:
        return origin
