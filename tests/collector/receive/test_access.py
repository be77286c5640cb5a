"""Who is let in: tokens, certificates, and names against DNS rebinding."""

import http.client
import select
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from support.certificates import Authority
from support.otlp_client import column, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli, cli_here, eventually, join, start

from otel_lightning.collector.receive.access import AccessGuard
from otel_lightning.collector.receive.refusals import RefusedError

Starter = Callable[..., Ingester]

TOKEN = "open-sesame"  # noqa: S105  a test's
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def export(
    ingester: Ingester, token: str | None = None, credentials: grpc.ChannelCredentials | None = None
) -> grpc.StatusCode:
    """Send an empty request over gRPC and return what became of it."""
    port = ingester.grpc.rpartition(":")[2]
    if credentials:
        channel = grpc.secure_channel(f"localhost:{port}", credentials)
    else:
        channel = grpc.insecure_channel(ingester.grpc)
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    with channel:
        try:
            channel.unary_unary(EXPORT)(b"", timeout=LIMIT_S, metadata=metadata)
        except grpc.RpcError as error:
            return error.code()  # type: ignore[attr-defined,no-any-return]
    return grpc.StatusCode.OK


# Where it listens.


@pytest.mark.parametrize("option", ["--http", "--grpc"])
@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "collector", "[::]"])  # noqa: S104  refused
def test_an_address_that_others_reach_needs_a_token(option: str, host: str, tmp_path: Path) -> None:
    result = cli_here("serve", option, f"{host}:4318", cwd=tmp_path)
    assert result.returncode == 2
    assert "can be reached from other machines: set LIGHTNING_TOKEN" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", [("--token", TOKEN), ("--insecure",)])
def test_with_a_token_or_an_explicit_word_others_may_reach_it(
    more: tuple[str, ...], starter: Starter
) -> None:
    ingester = starter("--http", "0.0.0.0:0", *more)
    assert ingester.http.startswith("0.0.0.0:")
    local = ingester.http.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    allowed = send(local, Authorization=f"Bearer {TOKEN}").status
    assert (allowed, send(local, Host="192.0.2.7", Authorization=f"bearer {TOKEN}").status) == (
        200,
        200,
    )
    assert send(local).status == (401 if "--token" in more else 200)


@pytest.mark.parametrize("token", ["", "  ", "café"])
def test_a_token_that_no_header_can_carry_is_refused(token: str, tmp_path: Path) -> None:
    result = cli_here("serve", "--token", token, cwd=tmp_path)
    assert (result.returncode, "the token must be ASCII and not empty" in result.stderr) == (
        2,
        True,
    )


# Tokens.


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer open", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
)
def test_without_the_token_nothing_is_received(header: str, ingester_with_token: Ingester) -> None:
    body = trace_request("a").SerializeToString()
    reply = send(ingester_with_token.http, body, Authorization=header)
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN not in reply.body.decode()
    metrics = send(ingester_with_token.http, path="/metrics", method="GET", Authorization=header)
    assert metrics.status == 401


def test_with_the_token_both_transports_receive(ingester_with_token: Ingester) -> None:
    assert send(ingester_with_token.http, Authorization=f"Bearer {TOKEN}").status == 200
    assert export(ingester_with_token, TOKEN) is grpc.StatusCode.OK
    assert export(ingester_with_token, "guess") is grpc.StatusCode.UNAUTHENTICATED
    assert export(ingester_with_token) is grpc.StatusCode.UNAUTHENTICATED


def test_files_are_loaded_through_a_guarded_ingester_by_the_stores_owner(
    ingester_with_token: Ingester, tmp_path: Path
) -> None:
    (tmp_path / "one.pb").write_bytes(trace_request("from a file").SerializeToString())
    result = cli("load", str(tmp_path / "one.pb"), "--store", str(ingester_with_token.store))
    assert result.returncode == 0, result.stderr
    assert column(ingester_with_token.store, "SELECT name FROM spans") == ["from a file"]


@pytest.fixture(scope="module")
def ingester_with_token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingester]:
    """One ingester for all that ask with a token, the right one or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTNING_TOKEN", TOKEN)
        ingester = start(tmp_path_factory.mktemp("guarded") / "traces.duckdb")
    yield ingester
    ingester.kill()


# Names.


OURS = AccessGuard.of((), ["127.0.0.1", "10.1.2.3"], ["Collector", "[2001:DB8::1]"])


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:4318", None),
        ("localhost", "http://localhost:3000"),
        ("[::1]:4318", "https://[::1]"),
        ("10.1.2.3:4318", None),
        ("COLLECTOR:4318", "https://collector"),
        ("collector.:4318", "https://collector."),  # an absolute name
        ("localhost.:4318", None),
        ("[2001:db8::1]:4318", None),
        (None, None),
    ],
)
def test_our_own_names_are_let_in(host: str | None, origin: str | None) -> None:
    OURS.check_names(host, origin)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("evil.test", None),
        ("localhost.evil.test:4318", None),
        ("127.0.0.1.evil.test", None),
        ("10.1.2.4:4318", None),
        ("[::1", None),
        ("localhost", "http://evil.test"),
        ("localhost", "null"),
        ("localhost", "http://10.1.2.4"),
    ],
)
def test_other_names_are_refused(host: str, origin: str | None) -> None:
    with pytest.raises(RefusedError, match="is not a name of this server") as refused:
        OURS.check_names(host, origin)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    "name", ["traces.example:4318", "http://traces.example", "a,b", "*.example", "", "a b"]
)
def test_an_allowed_host_that_no_request_can_have_is_refused(name: str, tmp_path: Path) -> None:
    told = cli_here("serve", "--allowed-host", name, "--store", str(tmp_path / "t.duckdb"))
    assert told.returncode == 2
    assert f"--allowed-host '{name}' is no host name" in told.stderr
    assert not list(tmp_path.iterdir())


def test_every_address_is_ours_where_all_are_listened_on_but_no_name_is() -> None:
    everywhere = AccessGuard.of((), ["0.0.0.0"], [])  # noqa: S104  what is tested
    everywhere.check_names("10.9.8.7:4318", None)
    with pytest.raises(RefusedError):
        everywhere.check_names("evil.test", None)


def test_another_sites_page_gets_neither_an_answer_nor_cors_headers(starter: Starter) -> None:
    ingester = starter("--allowed-host", "traces.example", "--allowed-host", "t.example")
    assert send(ingester.http, Host="evil.test").status == 403
    assert send(ingester.http, Host="traces.example:4318").status == 200
    preflight = {"Access_Control_Request_Method": "POST"}
    for origin, status in (("http://evil.test", 403), ("http://t.example", 405)):
        reply = send(ingester.http, method="OPTIONS", Origin=origin, **preflight)
        assert reply.status == status
        assert not [name for name in reply.headers if name.startswith("access-control")]


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def served_name(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


def test_both_transports_speak_tls(authority: Authority, starter: Starter) -> None:
    ingester = starter(*authority.options("first"))
    assert send(ingester.http, tls=authority.context()).status == 200
    assert export(ingester, credentials=authority.credentials()) is grpc.StatusCode.OK
    with pytest.raises((http.client.HTTPException, OSError)):
        send(ingester.http)


def test_with_client_certificates_nobody_else_is_let_in(
    authority: Authority, starter: Starter
) -> None:
    asked = ["--tls-client-ca", str(authority.folder / "ca.pem")]
    ingester = starter(*authority.options("first"), *asked, "--http", "0.0.0.0:0")
    local = ingester.http.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    assert send(local, tls=authority.context("client")).status == 200
    with pytest.raises(OSError, match=r"certificate required|reset|EOF"):
        send(local, tls=authority.context())
    known = export(ingester, credentials=authority.credentials("client"))
    unknown = export(ingester, credentials=authority.credentials())
    assert (known, unknown) == (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)


@pytest.mark.slow
@pytest.mark.parametrize("asks_clients", [False, True])
def test_files_are_loaded_through_an_ingester_that_is_guarded(
    asks_clients: bool,  # noqa: FBT001  pytest passes it by name
    authority: Authority,
    starter: Starter,
    tmp_path: Path,
) -> None:
    asked = ["--tls-client-ca", str(authority.folder / "ca.pem")] if asks_clients else []
    ingester = starter(*authority.options("first"), *asked, "--token", TOKEN)
    file = tmp_path / "traces.pb"
    file.write_bytes(trace_request("loaded").SerializeToString())
    load = ["load", str(file), "--store", str(ingester.store)]
    introduced = [f"--client-{kind}={authority.folder / f'client.{end}'}"
                  for kind, end in (("cert", "pem"), ("key", "key"))]  # fmt: skip
    if asks_clients:
        result = cli(*load)
        assert (result.returncode, "--client-cert" in result.stderr) == (1, True)
    result = cli(*load, *introduced)
    assert (result.returncode, result.stderr) == (0, "")
    assert column(ingester.store, "SELECT name FROM spans") == ["loaded"]


def test_new_certificates_are_served_after_sighup_while_requests_go_on(
    authority: Authority, starter: Starter
) -> None:
    ingester = starter(*authority.options("first"))
    context, done = authority.context(), threading.Event()
    statuses: list[int] = []
    hung_up: list[Exception] = []

    def keep_sending() -> None:
        while not done.is_set():
            try:
                statuses.append(send(ingester.http, tls=context).status)
            except (OSError, http.client.HTTPException) as error:
                hung_up.append(error)

    sender = threading.Thread(target=keep_sending, daemon=True)
    sender.start()
    try:
        authority.install("second")
        ingester.process.send_signal(signal.SIGHUP)
        second = (authority.folder / "second.pem").read_bytes()
        for address in (ingester.http, ingester.grpc):
            eventually(lambda address=address: served_name(address) == second)  # type: ignore[misc]
        assert served_name(ingester.http) == second
    finally:
        done.set()
        join(sender)
    assert set(statuses) == {200}
    assert hung_up == []


def test_new_certificates_hang_up_on_no_connection_that_is_open(
    authority: Authority, starter: Starter
) -> None:
    ingester = starter(*authority.options("first"))
    idle = http.client.HTTPSConnection(ingester.http, context=authority.context(), timeout=LIMIT_S)
    assert export_over(idle) == (200, None)
    host, _, port = ingester.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as opening:
        for name in ("second", "first"):
            authority.install(name)
            ingester.process.send_signal(signal.SIGHUP)
            current = (authority.folder / f"{name}.pem").read_bytes()
            eventually(lambda current=current: served_name(ingester.http) == current)  # type: ignore[misc]
        # A hang-up would make the connection readable.
        assert select.select([idle.sock, opening], [], [], 3) == ([], [], [])
        assert export_over(idle) == (200, "close")
        late = http.client.HTTPSConnection(
            ingester.http, context=authority.context(), timeout=LIMIT_S
        )
        late.sock = authority.context().wrap_socket(opening, server_hostname="localhost")
        assert export_over(late) == (200, "close")
    assert ingester.stop() == 0


def export_over(connection: http.client.HTTPConnection) -> tuple[int, str | None]:
    """Send an empty request; return the status and whether the connection ends with it."""
    connection.request("POST", "/v1/traces", b"", {"Content-Type": "application/x-protobuf"})
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("connection")


def test_a_broken_certificate_is_not_taken_over(authority: Authority, starter: Starter) -> None:
    ingester = starter(*authority.options("first"))
    (authority.folder / "live.pem").write_text("not a certificate")
    ingester.process.send_signal(signal.SIGHUP)
    for _ in range(20):
        assert send(ingester.http, tls=authority.context()).status == 200
    assert export(ingester, credentials=authority.credentials()) is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (("--tls-cert", "first.pem"), "give --tls-cert and --tls-key"),
        (("--tls-client-ca", "ca.pem"), "give --tls-cert and --tls-key"),
        (("--tls-cert", "first.pem", "--tls-key", "second.key"), "key values mismatch"),
        (("--tls-cert", "names", "--tls-key", "first.key"), "TLS cannot be started with names"),
    ],
)
def test_certificates_that_do_not_fit_are_refused_at_start(
    files: tuple[str, ...], reason: str, authority: Authority
) -> None:
    result = cli_here("serve", "--http", "127.0.0.1:0", *files, cwd=authority.folder)
    assert (result.returncode, reason in result.stderr) == (2, True)


@pytest.mark.slow
def test_no_secret_is_written_anywhere(tmp_path: Path, starter: Starter) -> None:
    ingester = starter("--token", TOKEN)
    send(ingester.http, b"\xff", Authorization=f"Bearer {TOKEN}")
    send(ingester.http, trace_request("a").SerializeToString(), Authorization=f"Bearer {TOKEN}")
    eventually(lambda: column(ingester.store, "SELECT name FROM spans") == ["a"])
    assert ingester.stop() == 0
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]
