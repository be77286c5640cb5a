"""Certificates: read at start, and again on SIGHUP."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True)
class Tls:
    """The files of a TLS server; with `client_ca` its clients need a certificate too."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def check(self) -> None:
        """Read the files as a server would.

        Raises:
            ValueError: If they are not a certificate and its key; the message says what is wrong.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        files = [str(path) for path in (self.cert, self.key, self.client_ca) if path]
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"TLS cannot be started with {', '.join(files)}: {error}. Give --tls-cert and "
                f"--tls-key a PEM certificate and its unencrypted key, --tls-client-ca a PEM file."
            ) from error


class GrpcCertificates:
    """What gRPC shows at each new connection: the files as they were at the last `reload`."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self.reload()

    def reload(self) -> None:
        """Read the files again."""
        tls = self._tls
        self._current = grpc.ssl_server_certificate_configuration(
            [(tls.key.read_bytes(), tls.cert.read_bytes())],
            tls.client_ca.read_bytes() if tls.client_ca else None,
        )

    def credentials(self) -> grpc.ServerCredentials:
        """Make credentials that follow every `reload`."""
        return grpc.dynamic_ssl_server_credentials(
            self._current,
            lambda: self._current,
            require_client_authentication=self._tls.client_ca is not None,
        )


def _no_password() -> str:
    """Answer for an encrypted key, or OpenSSL would ask the terminal."""
    raise ValueError("the key is encrypted")
