"""Addresses to listen on: `HOST:PORT`, or a socket that this process has inherited."""

import errno
import os
import socket
from typing import Any, NamedTuple, Self

FD = "fd://"
TCP = {(family, socket.SOCK_STREAM) for family in (socket.AF_INET, socket.AF_INET6)}
LAST_PORT = 65_535


class Address(NamedTuple):
    """Address to listen on; port 0 means any free port."""

    host: str
    port: int
    inherited: int | None = None
    """File descriptor of a bound socket that this process has inherited, instead of a new one."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `HOST:PORT`, or `fd://NUMBER` for a socket that this process has inherited.

        Raises:
            ValueError: If the text does not have that form, or the file descriptor is no socket.
        """
        if text.startswith(FD):
            return cls._of_inherited(text)
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"'{text}' is not HOST:PORT. Example: 127.0.0.1:4318")
        if int(port) > LAST_PORT:
            raise ValueError(f"'{text}' has no port from 0 to {LAST_PORT}. Example: 127.0.0.1:4318")
        # An IPv6 address stands in brackets: `[::1]:4318`.
        return cls(host.strip("[]"), int(port))

    @classmethod
    def _of_inherited(cls, text: str) -> Self:
        number = text.removeprefix(FD)
        if not number.isdecimal():
            raise ValueError(f"'{text}' is not fd://NUMBER. Example: fd://3")
        try:
            # A copy, so that closing it leaves the inherited one open.
            with socket.socket(fileno=os.dup(int(number))) as inherited:
                kind, name = (inherited.family, inherited.type), inherited.getsockname()
        except (OSError, ValueError) as error:
            raise ValueError(f"'{text}' is no TCP socket that was inherited: {error}") from error
        if kind not in TCP:
            raise ValueError(f"'{text}' is no TCP socket that was inherited, but of another kind.")
        return cls(name[0], name[1], int(number))

    def bind(self) -> socket.socket:
        """Bind a socket to the address without listening; port 0 becomes a free port.

        The socket reserves the address until a server listens there.

        Raises:
            OSError: If it is in use or not an address of this machine; the message says which.
        """
        if self.inherited is not None:
            return socket.socket(fileno=self.inherited)
        family, place = self._resolved()
        bound = socket.socket(family, socket.SOCK_STREAM)
        # Otherwise a restart would fail while connections of the process before are in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Without this a bind to [::] would take the IPv4 port too.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            bound.bind(place)
        except OSError as error:
            bound.close()
            raise OSError(error.errno, _why(self, error)) from error
        return bound

    def _resolved(self) -> tuple[socket.AddressFamily, Any]:
        """Look up the host; of the addresses of a name, take one of IPv4 if there is any.

        Raises:
            OSError: If the name has no address.
        """
        try:
            found = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise OSError(error.errno, _why(self, error)) from error
        family, *_, place = min(found, key=lambda one: one[0] != socket.AF_INET)
        return family, place

    def of(self, bound: socket.socket) -> Self:
        """Return this address with the port of a bound socket."""
        return self._replace(port=bound.getsockname()[1])

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _why(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address} is in use. Stop what listens there, or choose another address with "
            f"--grpc and --http."
        )
    return f"{address} cannot be bound: {error.strerror}. Choose another with --grpc and --http."
