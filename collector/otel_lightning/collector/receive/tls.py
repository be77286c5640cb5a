"""TLS certificates: read at start, and again on SIGHUP."""

import ssl
from dataclasses import dataclass
from pathlib import Path


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
                f"TLS cannot be started with {', '.join(files)}: {error}. Give --tls-cert and "
                f"--tls-key a PEM certificate and its unencrypted key, --tls-client-ca a PEM file."
            ) from error


def _no_password() -> str:
    """Fail on an encrypted key; without this, OpenSSL asks for the password on the terminal."""
    raise ValueError("the key is encrypted")
