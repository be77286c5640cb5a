"""Variables that keep an agent's spans from arriving, for `doctor` on an empty store.

An agent that sends nothing leaves no trace in the store. But it is often started from the shell in
which `doctor` is run, and so has the same variables.

Source:
    OpenTelemetry, "Environment Variable Specification" and "OpenTelemetry Protocol Exporter".
"""

import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from otel_lightning.collector.ingester_client.http import asks_for_token
from otel_lightning.collector.store import Server

ENDPOINT, TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
PATH = "/v1/traces"
PORTS = {"http": 80, "https": 443}
"""Ports of a URL without one."""
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
GRPC_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
SWITCHED_OFF = (
    ("OTEL_SDK_DISABLED", ("true",), "OpenTelemetry's SDK records nothing"),
    ("OTEL_TRACES_EXPORTER", ("none", "console"), "spans are not sent"),
    ("OTEL_TRACES_SAMPLER", ("always_off", "parentbased_always_off"), "no span is sampled"),
    ("LIGHTNING_INSTRUMENT", ("false", "0", "no", "off"), "otel-lightning starts no tracing"),
)
"""Variables, the values with which nothing arrives, and why."""


class Fault(NamedTuple):
    """A variable whose value is wrong, the problem, and the value to set instead."""

    setting: str
    """The variable, with its value unless that may be secret."""
    fault: str
    remedy: str


class Place(NamedTuple):
    """Where an agent with these variables sends its spans."""

    variable: str
    url: SplitResult
    is_http: bool
    """Whether it speaks OTLP over HTTP, and not over gRPC."""

    @property
    def setting(self) -> str:
        """The variable with its value, without a password."""
        shown = self.url._replace(netloc=self.url.netloc.rpartition("@")[2])
        return f"{self.variable}={shown.geturl()}"

    @property
    def port(self) -> int | None:
        """The port that is used; None if it is no number."""
        try:
            return self.url.port or PORTS.get(self.url.scheme)
        except ValueError:
            return None


def faults_here(server: Server | None) -> list[Fault]:
    """Return what is wrong with the variables of this process.

    Args:
        server: The running ingester, to which the spans should come; None if none runs.
    """
    needs_token = server is not None and asks_for_token(server)
    return list(faults(os.environ, server, needs_token=needs_token))


def faults(
    variables: Mapping[str, str], server: Server | None, *, needs_token: bool
) -> Iterator[Fault]:
    """Yield what is wrong with the variables of a shell from which agents are started.

    Args:
        variables: The variables.
        server: The running ingester, to which the spans should come; None if none runs.
        needs_token: Whether it asks for a token.
    """
    for name, values, fault in SWITCHED_OFF:
        if (given := variables.get(name, "").strip()).lower() in values:
            yield Fault(f"{name}={given}", fault, f"unset {name}")
    if place := _place(variables):
        yield from _path(place)
        yield from _proxy(place, variables)
        if server:
            yield from _port(place, server)
            yield from _scheme(place, server)
    if needs_token and not any("authorization" in variables.get(n, "").lower() for n in HEADERS):
        fault = "has no token, and lightning-ingest asks for one"
        remedy = f"set {HEADERS[-1]}=authorization=Bearer%20TOKEN, with its LIGHTNING_TOKEN"
        yield Fault(HEADERS[-1], fault, remedy)


def _place(variables: Mapping[str, str]) -> Place | None:
    """Return where the variables send spans; None if they leave it to the default."""
    name = next((one for one in (TRACES, ENDPOINT) if variables.get(one, "").strip()), None)
    if name is None:
        return None
    given = variables[name].strip()
    try:
        url = urlsplit(given if "://" in given else f"http://{given}")
    except ValueError:
        return None
    protocol = next((variables[one] for one in PROTOCOLS if variables.get(one, "").strip()), "")
    # Without a protocol, otel-lightning's instrumentation chooses by the endpoint.
    guessed = given.rstrip("/").endswith(":4318") or url.path.strip("/") != ""
    return Place(name, url, protocol.strip().lower().startswith("http") if protocol else guessed)


def _path(place: Place) -> Iterator[Fault]:
    has_path = place.url.path.rstrip("/").endswith(PATH)
    if not place.is_http or has_path == (place.variable == TRACES):
        return
    if has_path:
        fault = f"the exporter adds {PATH} to it, so the path is there twice"
        yield Fault(place.setting, fault, f"leave out {PATH}, or set {TRACES} instead")
    else:
        fault = f"the exporter takes it as it is, and it does not end in {PATH}"
        yield Fault(place.setting, fault, f"add {PATH}, or set {ENDPOINT} instead")


def _port(place: Place, server: Server) -> Iterator[Fault]:
    http, grpc = _port_of(server.http), _port_of(server.grpc or "")
    ours, others = (http, grpc) if place.is_http else (grpc, http)
    if place.port == ours or not _is_here(place.url.hostname or ""):
        return
    if place.port != others:
        there = f"HTTP at port {http}" + (f" and gRPC at port {grpc}" if grpc else "")
        yield Fault(place.setting, f"lightning-ingest takes {there}", "send to that port")
        return
    sent, other = ("HTTP", "grpc") if place.is_http else ("gRPC", "http/protobuf")
    remedy = f"set {PROTOCOLS[-1]}={other}" + (f", or send {sent} to port {ours}" if ours else "")
    yield Fault(place.setting, f"{sent} is sent to the port of the other protocol", remedy)


def _scheme(place: Place, server: Server) -> Iterator[Fault]:
    is_ours = place.port in {_port_of(server.http), _port_of(server.grpc or "")}
    wanted = "https" if server.tls_cert else "http"
    if not is_ours or place.url.scheme == wanted:
        return
    speaks = "speaks TLS" if server.tls_cert else "speaks no TLS"
    yield Fault(place.setting, f"lightning-ingest {speaks} there", f"write {wanted}://")


def _proxy(place: Place, variables: Mapping[str, str]) -> Iterator[Fault]:
    """Yield the proxy that gets what is meant for this machine."""
    given = {name.lower(): value for name, value in variables.items() if value}
    names = (f"{place.url.scheme}_proxy", "all_proxy") if place.is_http else GRPC_PROXIES
    proxy, host = next((name for name in names if name in given), None), place.url.hostname or ""
    excepted = given.get("no_proxy", "")
    # Networks, such as 127.0.0.0/8, are read by some clients only.
    if not proxy or not _is_here(host) or "/" in excepted:
        return
    if not proxy_bypass_environment(host, {"no": excepted}):
        yield Fault(proxy, f"what is sent to {host} goes to the proxy", f"set NO_PROXY={host}")


def _port_of(address: str) -> int | None:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else None


def _is_here(host: str) -> bool:
    """Return whether a host is this machine for sure."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
