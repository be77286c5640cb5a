"""Who may send: nobody from outside without a token, a certificate or an explicit word.

A page in a browser on this machine can reach loopback. It cannot choose the Host and Origin that
its browser sends, so both must be names of this server: that ends DNS rebinding. No answer carries
a CORS header.
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
    """The tokens that open the receiver, if any are asked for, and the names that it goes by."""

    tokens: tuple[str, ...] = field(default=(), repr=False)
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tokens: tuple[str, ...], listening: Iterable[str], allowed: Iterable[str]) -> Self:
        """Allow the addresses that it listens on and the names in `allowed`."""
        return cls(tokens, frozenset(name.lower() for name in (*listening, *allowed)))

    def admit(self, authorization: str | None) -> None:
        """Check a bearer token.

        Raises:
            RefusedError: If a token is asked for and this is not it.
        """
        if not self.tokens:
            return
        given = (authorization or "").encode()
        is_bearer = given[: len(SCHEME)].lower() == SCHEME.encode()
        secret = given[len(SCHEME) :].strip()
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
            RefusedError: If its Host or Origin is somebody else's name.
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
        # An address cannot be rebound; on a wildcard every address is ours.
        return is_address(name) and any(map(is_wildcard, self.hosts))


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host name or address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)


def is_wildcard(host: str) -> bool:
    """Tell whether an address stands for all addresses of this machine."""
    return is_address(host) and ip_address(host).is_unspecified


def is_address(host: str) -> bool:
    """Tell an IP address from a name."""
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
    """Return the host name in an Origin header; what has none is returned as it is."""
    if not origin:
        return None
    try:
        return urlsplit(origin).hostname or origin
    except ValueError:
        return origin
