"""TLS certificates: read at start, and again when the files have changed or on SIGHUP."""

import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from otel_lightning.collector.files.reason import reason

NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""OpenSSL's `X509_V_FLAG_NO_CHECK_TIME`, for which Python has no name."""
HANDSHAKE_STEPS = 10
"""Largest number of steps of each side in a handshake, which takes fewer."""


class Validity(NamedTuple):
    """The time in which a certificate is valid, in Unix seconds."""

    subject: str
    """The certificate, as a sentence about it begins: "the certificate 'server.pem'"."""
    begin: float
    end: float


@dataclass(frozen=True)
class Tls:
    """Certificate files of a TLS server; with `client_ca` its clients need a certificate too."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def check(self) -> None:
        """Check that the files can be used for a TLS server.

        Raises:
            ValueError: If they are not a certificate and its key; the message gives the fault.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        files = [str(path) for path in (self.cert, self.key, self.client_ca) if path]
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"TLS cannot be started with {', '.join(files)}: {reason(error)}. Give --tls-cert "
                "and --tls-key a PEM certificate and its unencrypted key, --tls-client-ca a PEM "
                "file."
            ) from error

    def versions(self) -> list[tuple[int, ...] | None]:
        """Return for each file what changes if it is replaced; None if it is not there."""
        return [_version(path) for path in (self.cert, self.key, self.client_ca) if path]

    def validities(self) -> list[Validity]:
        """Return when the server's certificate is valid, and when an authority of its clients is.

        If there are several authorities, it is the one that is valid longest.
        """
        validities = [_validity(f"the certificate '{self.cert}'", self._served())]
        if self.client_ca:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_verify_locations(self.client_ca)
            subject = f"the authority of clients '{self.client_ca}'"
            of_authorities = [_validity(subject, one) for one in context.get_ca_certs()]
            validities += sorted(of_authorities, key=lambda one: one.end)[-1:]
        return validities

    def _served(self) -> dict[str, Any]:
        """Return the certificate as a client sees it: Python tells its dates only to a client."""
        ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
        ours.load_cert_chain(self.cert, self.key, password=_no_password)
        theirs.check_hostname = False
        theirs.load_verify_locations(self.cert)
        theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = ours.wrap_bio(to_server, to_client, server_side=True)
        client = theirs.wrap_bio(to_client, to_server)
        for _ in range(HANDSHAKE_STEPS):
            for side in (client, server):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        return client.getpeercert() or {}


def _version(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()  # of the file that a link leads to: Kubernetes replaces the link
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _validity(subject: str, certificate: dict[str, Any]) -> Validity:
    begin, end = (certificate[name] for name in ("notBefore", "notAfter"))
    return Validity(subject, ssl.cert_time_to_seconds(begin), ssl.cert_time_to_seconds(end))


def _no_password() -> str:
    """Fail on an encrypted key; without this, OpenSSL asks for the password on the terminal."""
    raise ValueError("the key is encrypted")
