"""Access control: bearer tokens, and the names under which clients may call this server.

A web page in a browser on this machine can send requests to loopback. The browser sets Host and
Origin, and the page cannot change them. So both must be names of this server, which prevents DNS
rebinding. No answer has a CORS header.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from otel_lightning.collector.receive.refusals import RefusedError

SCHEME = "bearer "


@dataclass(frozen=True)
class Guard:
    """The accepted tokens (none: no token is required) and the allowed host names."""

    tokens: tuple[str, ...] = field(default=(), repr=False)
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tokens: tuple[str, ...], listening: Iterable[str], allowed: Iterable[str]) -> Self:
        """Allow the addresses in `listening` and the names in `allowed`."""
        return cls(tokens, frozenset(name.lower() for name in (*listening, *allowed)))

    def admit(self, authorization: str | None) -> None:
        """Check a bearer token.

        Raises:
            RefusedError: If a token is required and this one is not accepted.
        """
        if not self.tokens:
            return
        given = (authorization or "").encode()
        is_bearer = given[: len(SCHEME)].lower() == SCHEME.encode()
        secret = given[len(SCHEME) :].strip()
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

    def _is_ours(self, name: str) -> bool:
        if name in self.hosts or is_loopback(name):
            return True
        # DNS rebinding needs a name, not an address. On a wildcard address, such as 0.0.0.0,
        # the server listens on every address of this machine.
        return is_address(name) and any(map(is_wildcard, self.hosts))


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
