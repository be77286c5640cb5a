"""Settings of `lightning-ingest serve`: addresses, access and limits, checked before the start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from otel_lightning.collector.alarms import REFUSE_AFTER_SECONDS
from otel_lightning.collector.load.decoding.attribute_limits import Limits
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.receive.accept import MAX_BODY_BYTES
from otel_lightning.collector.receive.access import is_host, is_loopback
from otel_lightning.collector.receive.tls import Tls
from otel_lightning.collector.serve.address import Address
from otel_lightning.collector.store import MEMORY_BYTES
from otel_lightning.collector.store.clients.reader_limits import NO_READER_LIMITS, ReaderLimits
from otel_lightning.collector.terminal.quantities import parse_age, parse_size

MIB = 1024 * 1024
T = TypeVar("T")
NONE = "none"


@dataclass(frozen=True)
class Settings:
    """All settings of the server; `check` validates them."""

    store: Path
    grpc: Address | None
    """Where to receive OTLP over gRPC; with None it is not received, nor gRPC loaded."""
    http: Address
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    max_body: int = MAX_BODY_BYTES
    memory_bytes: int = MEMORY_BYTES
    readers: ReaderLimits = NO_READER_LIMITS
    loader: LoaderSettings = field(default_factory=LoaderSettings)
    refuse_after: float = REFUSE_AFTER_SECONDS
    page: bool | None = None
    """Whether to serve the page; None serves it if only this machine reaches `http`."""
    page_sql: bool = False
    """Whether the page of an address that others reach has an SQL console."""
    link: Path | None = None
    """The symbolic link by which the user named the store."""

    @property
    def addresses(self) -> list[Address]:
        """The addresses to listen on."""
        return [one for one in (self.grpc, self.http) if one]

    @property
    def has_page(self) -> bool:
        """Whether the page is served."""
        return is_loopback(self.http.host) if self.page is None else self.page

    @property
    def has_console(self) -> bool:
        """Whether the page has an SQL console."""
        return self.page_sql or is_loopback(self.http.host)

    def check(self) -> None:
        """Refuse settings that give everybody access, or with which the server cannot start.

        Raises:
            ValueError: With one sentence about the fault and one about the remedy.
        """
        self._check_texts()
        self._check_access()
        if self.tls:
            self.tls.check()

    def _check_texts(self) -> None:
        """Refuse settings that no request or socket could have."""
        if self.token is not None and (not self.token.strip() or not self.token.isascii()):
            raise ValueError(
                "the token must be ASCII and not empty. Make one: openssl rand -hex 32"
            )
        if wrong := [one for one in self.allowed_hosts if not is_host(one)]:
            raise ValueError(
                f"--allowed-host '{wrong[0]}' is no host name, so no request would have it: write "
                f"the name without scheme, port and path. Repeat the option for several names; in "
                f"LIGHTNING_ALLOWED_HOST put spaces between them."
            )
        if self.grpc and self.grpc.inherited is not None:
            raise ValueError("gRPC cannot use a socket that was inherited: give --grpc HOST:PORT.")

    def _check_access(self) -> None:
        """Refuse to let everybody in who reaches an address, unless that is wanted."""
        needs_client = self.tls is not None and self.tls.client_ca is not None
        open_to_all = [a for a in self.addresses if not is_loopback(a.host)]
        if open_to_all and not (self.token or needs_client or self.insecure):
            raise ValueError(
                f"{open_to_all[0]} can be reached from other machines: set LIGHTNING_TOKEN (or "
                f"--token), or ask for client certificates with --tls-client-ca, or say "
                f"--insecure to receive from anyone."
            )
        if self.page and not is_loopback(self.http.host) and not (self.token or needs_client):
            raise ValueError(
                f"the page shows prompts and answers, and {self.http} can be reached from other "
                f"machines: set LIGHTNING_TOKEN (or --token), or ask for client certificates with "
                f"--tls-client-ca, or leave out --page."
            )


def settings(store: Path, options: Mapping[str, Any], link: Path | None = None) -> Settings:
    """Create settings from the options of the command line.

    Args:
        store: The DuckDB file.
        options: Values by the names of the parameters of the command `serve`.
        link: The symbolic link by which the user named the store.

    Raises:
        ValueError: With one sentence about the fault and one about the remedy.
    """
    chosen = Settings(
        store,
        None if options["grpc"] == NONE else _read(options, "grpc", Address.parse),
        _read(options, "http", Address.parse),
        token=options["token"],
        tls=_tls(options["tls_cert"], options["tls_key"], options["tls_client_ca"]),
        insecure=options["insecure"],
        allowed_hosts=options["allowed_hosts"],
        max_body=options["max_body"] * MIB,
        memory_bytes=options["memory"],
        readers=ReaderLimits(
            options["reader_seconds"],
            options["reader_rows"],
            _read(options, "reader_memory", parse_size),
        ),
        loader=_loader_settings(options),
        refuse_after=_read(options, "refuse_after", parse_age),
        page=options["page"],
        page_sql=options["page_sql"],
        link=link,
    )
    chosen.check()
    return chosen


def _read(options: Mapping[str, Any], name: str, parse: Callable[[str], T]) -> T:
    """Read the text of one option; an error names the option."""
    try:
        return parse(options[name])
    except ValueError as error:
        raise ValueError(f"--{name.replace('_', '-')}: {error}") from error


def _loader_settings(options: Mapping[str, Any]) -> LoaderSettings:
    return LoaderSettings(
        _read(options, "retain", parse_age) if options["retain"] else None,
        _read(options, "max_size", parse_size) if options["max_size"] else None,
        derive=not options["no_derive"],
        spans_at_once=options["spans_at_once"],
        workers=options["workers"],
        limits=Limits(options["max_value_length"], options["max_attributes"]),
        max_lag_seconds=_read(options, "max_lag", parse_age),
    )


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    if cert and key:
        return Tls(cert, key, client_ca)
    if cert or key or client_ca:
        raise ValueError("TLS needs a certificate and its key: give --tls-cert and --tls-key.")
    return None
