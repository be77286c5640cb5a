"""Who may read the page: codes and cookies, Host, Origin and Sec-Fetch-Site, by real requests."""

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from support.browser import ask, link, session
from support.otlp_client import JSON, PROTOBUF, column, send
from support.running import LIMIT_S, Ingester, cli, cli_here, eventually, finish, start

from otel_lightning.collector.page.answer import HEADERS, POLICY
from otel_lightning.collector.page.live import MOST_STREAMS
from otel_lightning.collector.receive.access import AccessGuard, BrowserRequest
from otel_lightning.collector.receive.refusals import RefusedError

GUARD = AccessGuard.of((), ["127.0.0.1"], ["traces.example"])
HERE = "localhost:4318"
LET_IN = [
    # method, Host, Origin, Sec-Fetch-Site, TLS
    ("GET", HERE, None, None, False),
    ("GET", HERE, None, "none", False),
    ("GET", HERE, None, "same-origin", False),
    ("POST", HERE, None, None, False),
    ("POST", HERE, f"http://{HERE}", "same-origin", False),
    ("POST", HERE, f"http://{HERE}", None, False),
    ("POST", "LOCALHOST:4318", f"http://{HERE}", None, False),
    ("POST", "localhost", "http://localhost:80", None, False),
    ("POST", HERE, f"https://{HERE}", None, True),
    ("POST", "traces.example", "https://traces.example", None, False),  # a proxy ends TLS
]
KEPT_OUT = [
    ("GET", HERE, None, "cross-site", False),
    ("GET", HERE, None, "same-site", False),  # a page on another port of this machine
    ("GET", HERE, "http://localhost:3000", None, False),
    ("POST", HERE, None, "none", False),
    ("POST", HERE, None, "cross-site", False),
    ("POST", HERE, f"http://{HERE}", "same-site", False),
    ("POST", HERE, "http://localhost:3000", None, False),
    ("POST", HERE, "http://localhost", None, False),
    ("POST", HERE, "http://127.0.0.1:4318", None, False),
    ("POST", HERE, f"https://{HERE}", None, False),
    ("POST", HERE, f"http://{HERE}", None, True),
    ("POST", HERE, "null", None, False),
    ("POST", HERE, "http://localhost:4318.evil.test", None, False),
    ("POST", HERE, "http://[::1", None, False),
    ("POST", None, "http://localhost:4318", None, False),
]


@pytest.mark.parametrize(("method", "host", "origin", "site", "tls"), LET_IN)
def test_a_request_of_our_own_page_or_of_a_program_passes(
    method: str, host: str | None, origin: str | None, site: str | None, *, tls: bool
) -> None:
    GUARD.check_site(BrowserRequest(method, host, origin, site), tls=tls)


@pytest.mark.parametrize(("method", "host", "origin", "site", "tls"), KEPT_OUT)
def test_a_request_of_another_sites_page_is_refused(
    method: str, host: str | None, origin: str | None, site: str | None, *, tls: bool
) -> None:
    with pytest.raises(RefusedError, match="another site's page") as refused:
        GUARD.check_site(BrowserRequest(method, host, origin, site), tls=tls)
    assert refused.value.status == 403


@pytest.fixture(scope="module")
def open_ingester(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingester]:
    """One running ingester on an empty store."""
    started = start(tmp_path_factory.mktemp("page") / "t.duckdb")
    yield started
    started.stop()


def test_without_a_session_nothing_of_the_store_is_shown(open_ingester: Ingester) -> None:
    for path in ("/ui", "/ui/sql?q=FROM+spans", "/ui/rollouts/x", "/ui/live", "/ui/nothing"):
        for cookie in ("", "lightning_page_4318=x"):
            reply = ask(open_ingester, path, Cookie=cookie)
            assert (reply.status, b"This page is locked" in reply.body) == (401, True)
    refused = ask(open_ingester, "/ui/feedback", method="POST", body=b"{}", Content_Type=JSON)
    assert refused.status == 401


def test_a_link_opens_the_page_once(open_ingester: Ingester) -> None:
    address = link(open_ingester, "/ui/sql").partition(open_ingester.http)[2]
    assert ask(open_ingester, address, method="HEAD").status == 405  # does not use it up
    entered = ask(open_ingester, address)
    assert (entered.status, entered.headers["location"]) == (303, "/ui/sql")
    cookie = entered.headers["set-cookie"].partition(";")[0]
    assert ask(open_ingester, "/ui", Cookie=cookie).status == 200
    again = ask(open_ingester, address)
    assert (again.status, "set-cookie" in again.headers) == (401, False)


@pytest.mark.parametrize(
    "target",
    ["//evil.test", "https://evil.test", "/ui/../v1", "/\\evil.test", "/ui\r\nx: y", "/v1"],
)
def test_a_link_leads_to_no_other_site(target: str, open_ingester: Ingester) -> None:
    address = link(open_ingester).partition(open_ingester.http)[2]
    entered = ask(open_ingester, f"{address}&to={quote(target, safe='')}")
    assert entered.status == 303
    assert entered.headers["location"].startswith("/ui")


def test_locking_ends_the_session(open_ingester: Ingester) -> None:
    cookie = session(open_ingester)
    left = ask(open_ingester, "/ui/leave", method="POST", Cookie=cookie, Content_Length="0")
    assert (left.status, "Max-Age=0" in left.headers["set-cookie"]) == (303, True)
    assert ask(open_ingester, "/ui", Cookie=cookie).status == 401


def test_every_answer_has_the_policy(open_ingester: Ingester) -> None:
    cookie = session(open_ingester)
    for path in ("/", "/ui", "/ui/page.js", "/ui/nothing", "/ui/sql?q=oh", "/ui/enter?code=x"):
        headers = ask(open_ingester, path, Cookie=cookie).headers
        assert {name: headers.get(name) for name, _ in HEADERS} == dict(HEADERS), path
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_on_another_site_shows_nothing_and_runs_nothing(
    site: str, open_ingester: Ingester
) -> None:
    cookie = session(open_ingester)
    navigating = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate"}
    path = "/ui/sql?q=SELECT+40%2B2"
    shown = ask(open_ingester, path, Cookie=cookie, Sec_Fetch_Dest="document", **navigating)
    assert (shown.status, b"Another site" in shown.body, b">42<" in shown.body) == (
        200,
        True,
        False,
    )
    framed = ask(open_ingester, path, Cookie=cookie, Sec_Fetch_Dest="iframe", **navigating)
    assert framed.status == 403
    fetched = ask(open_ingester, path, Cookie=cookie, Sec_Fetch_Site=site, Sec_Fetch_Mode="cors")
    assert fetched.status == 403


def test_a_closed_tab_makes_room_for_another_live_stream(open_ingester: Ingester) -> None:
    cookie = session(open_ingester)
    for _ in range(MOST_STREAMS + 5):
        connection = http.client.HTTPConnection(open_ingester.http, timeout=LIMIT_S)
        eventually(lambda: streams(connection, cookie) == 200)  # noqa: B023  waits in the loop
        connection.close()


def streams(connection: http.client.HTTPConnection, cookie: str) -> int:
    """Ask for the live counts and read their first line."""
    connection.close()
    connection.request("GET", "/ui/live", headers={"Cookie": cookie})
    answer = connection.getresponse()
    answer.readline()
    return answer.status


def test_stopping_ends_live_streams(starter: Callable[..., Ingester]) -> None:
    ingester = starter()
    connection = http.client.HTTPConnection(ingester.http, timeout=LIMIT_S)
    assert streams(connection, session(ingester)) == 200
    assert ingester.stop() == 0
    connection.close()


def test_the_name_in_host_has_to_be_ours(open_ingester: Ingester) -> None:
    cookie = session(open_ingester)
    assert ask(open_ingester, "/ui", Cookie=cookie, Host="evil.test").status == 403
    assert ask(open_ingester, "/ui/page.css", Host="evil.test").status == 403


def test_a_page_on_another_port_cannot_post_to_any_path(open_ingester: Ingester) -> None:
    cookie = session(open_ingester)
    judged = b'{"id": "1", "name": "n", "value": 1, "rollout_id": "r"}'
    for path in ("/ui/feedback", "/v1/feedback", "/v1/traces", "/ui/leave", "/ui/code"):
        content_type = PROTOBUF if path == "/v1/traces" else JSON
        for foreign in ({"Origin": "http://localhost:3000"}, {"Sec_Fetch_Site": "same-site"}):
            reply = ask(open_ingester, path, method="POST", body=judged, Cookie=cookie,
                        Content_Type=content_type, **foreign)  # fmt: skip
            assert reply.status == 403, path
    own = {"Origin": f"http://{open_ingester.http}", "Sec_Fetch_Site": "same-origin"}
    reply = ask(open_ingester, "/ui/feedback", method="POST", body=judged, Cookie=cookie,
                Content_Type=JSON, **own)  # fmt: skip
    assert (reply.status, json.loads(reply.body)) == (200, {"stored": 1, "rejected": []})


def test_a_judgement_of_the_page_is_stored_as_feedback(open_ingester: Ingester) -> None:
    cookie = session(open_ingester)
    for value in (0.25, 0.75):
        item = {"id": "page:r1:human", "name": "human", "value": value, "rollout_id": "r1"}
        body = json.dumps(item).encode()
        ask(open_ingester, "/ui/feedback", method="POST", body=body, Cookie=cookie,
            Content_Type=JSON)  # fmt: skip
    query = "SELECT value FROM judgements WHERE name = 'human'"
    eventually(lambda: column(open_ingester.store, query) == [0.75])


def test_without_a_page_nothing_answers_and_open_says_so(tmp_path: Path) -> None:
    ingester = start(tmp_path / "t.duckdb", "--no-page")
    try:
        assert ask(ingester, "/ui").status == 404
        result = cli("open", "--store", str(ingester.store))
        assert (result.returncode, "start it with --page" in result.stderr) == (1, True)
    finally:
        ingester.stop()


def test_open_prints_a_link_to_a_rollout(open_ingester: Ingester) -> None:
    result = cli_here("open", "a/b", "--no-browser", "--store", str(open_ingester.store))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"http://{open_ingester.http}/ui/enter?code=")
    assert result.stdout.endswith("to=%2Fui%2Frollouts%2Fa%25252Fb\n")
    assert result.stderr == "Open this link in a browser within a minute; it works once.\n"


def test_open_says_that_nothing_runs(tmp_path: Path) -> None:
    result = cli("open", "--store", str(tmp_path / "t.duckdb"))
    assert (result.returncode, "No lightning-ingest serves" in result.stderr) == (1, True)


@pytest.mark.parametrize("more", [(), ("--insecure",)])
def test_elsewhere_the_page_needs_a_token_or_client_certificates(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    result = cli_here("serve", "--page", "--http", "0.0.0.0:0", *more, cwd=tmp_path)
    assert result.returncode == 2
    assert "set LIGHTNING_TOKEN (or --token), or ask for client certificates" in result.stderr


def test_elsewhere_there_is_no_page_unless_asked_for(starter: Callable[..., Ingester]) -> None:
    ingester = starter("--http", "0.0.0.0:0", "--insecure")
    ingester.http = ingester.http.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    assert ask(ingester, "/ui").status == 404


def test_elsewhere_the_page_is_locked_and_has_no_console_unless_asked_for(
    starter: Callable[..., Ingester],
) -> None:
    ingester = starter("--http", "0.0.0.0:0", "--token", "t", "--page")
    ingester.http = ingester.http.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert ask(ingester, "/ui").status == 401
    # Without TLS the network could read the token.
    assert ask(ingester, "/ui/enter", method="POST", body=b"token=t", **form).status == 403
    cookie = session(ingester)
    assert ask(ingester, "/ui", Cookie=cookie).status == 200
    assert ask(ingester, "/ui/sql?q=SELECT+42", Cookie=cookie).status == 404
    assert ask(ingester, "/ui/sql.csv?q=SELECT+42", Cookie=cookie).status == 404
    # The session is for the page: the other paths still need the token.
    assert send(ingester.http, Cookie=cookie).status == 401


@pytest.mark.slow
def test_over_tls_the_token_opens_the_page_by_a_form(
    starter: Callable[..., Ingester], tmp_path: Path
) -> None:
    finish(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
        "-keyout", "k.pem", "-out", "c.pem", cwd=tmp_path, check=True,
    )  # fmt: skip
    tls = ("--tls-cert", str(tmp_path / "c.pem"), "--tls-key", str(tmp_path / "k.pem"))
    ingester = starter(*tls, "--token", "t")
    context = ssl.create_default_context(cafile=str(tmp_path / "c.pem"))
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    for token, status in (("wrong", 401), ("t", 303)):
        reply = send(
            ingester.http, f"token={token}".encode(), path="/ui/enter", tls=context, **form
        )
        assert reply.status == status
    assert "Secure" in reply.headers["set-cookie"]
    assert link(ingester).startswith("https://127.0.0.1:")
