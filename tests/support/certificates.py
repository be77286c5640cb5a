"""A certificate authority of a test: certificates of two servers and a client."""

import ssl
from pathlib import Path

import grpc

from support.running import finish


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        usage = "-addext keyUsage=critical,keyCertSign"  # without it Python 3.13 refuses it
        self._openssl(f"req -x509 -subj /CN=authority {usage} -keyout ca.key -out ca.pem")
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        for name in ("first", "second", "client"):
            self._openssl(f"req -subj /CN={name} -keyout {name}.key -out {name}.csr")
            self.sign(name, name, "-days", "2")

    def sign(self, name: str, into: str, *options: str) -> None:
        """Make a certificate for the key of another one."""
        (self.folder / f"{into}.key").write_bytes((self.folder / f"{name}.key").read_bytes())
        finish(
            "openssl", "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey",
            "ca.key", "-CAcreateserial", *options, "-extfile", "names", "-out",
            f"{into}.pem", cwd=self.folder, check=True,
        )  # fmt: skip

    def _openssl(self, options: str) -> None:
        key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        command = ["openssl", *options.split(), *key.split()]
        finish(*command, cwd=self.folder, check=True)

    def options(self, name: str) -> list[str]:
        """Serve with a certificate, from files that can be replaced."""
        self.install(name)
        cert, key = self.folder / "live.pem", self.folder / "live.key"
        return ["--tls-cert", str(cert), "--tls-key", str(key)]

    def install(self, name: str) -> None:
        """Serve another certificate; nobody finds half a file."""
        for kind in ("pem", "key"):
            whole = self.folder / f"whole.{kind}"
            whole.write_bytes((self.folder / f"{name}.{kind}").read_bytes())
            whole.replace(self.folder / f"live.{kind}")

    def context(self, name: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if name:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context

    def credentials(self, name: str | None = None) -> grpc.ChannelCredentials:
        files = (f"{name}.key", f"{name}.pem") if name else ()
        return grpc.ssl_channel_credentials(
            (self.folder / "ca.pem").read_bytes(),
            *((self.folder / file).read_bytes() for file in files),
        )
