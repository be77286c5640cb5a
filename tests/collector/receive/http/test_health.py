"""Probes hear whether the process lives and takes requests, without a token."""

import http.client
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, eventually

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.receive.accept import Receiver
from otel_lightning.collector.receive.access import AccessGuard
from otel_lightning.collector.receive.http.health import PATHS, health
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import open_store

Starter = Callable[..., Ingester]


def ask(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=LIMIT_S)
    connection.request(method, path, headers={"Host": "kubernetes.example"})
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text


@pytest.mark.parametrize("path", PATHS)
def test_a_probe_needs_no_token_and_no_name(path: str, starter: Starter) -> None:
    ingester = starter("--token", "secret")
    assert ask(ingester.http, "/metrics")[0] == 403
    status, text = ask(ingester.http, path)
    assert status == 200
    assert text in ("alive\n", "ready\n")
    assert ask(ingester.http, path, "HEAD") == (200, "")
    assert ask(ingester.http, path, "POST")[0] == 405


def test_it_is_ready_only_while_it_takes_requests(starter: Starter, tmp_path: Path) -> None:
    ingester = starter("--refuse-after", "1s")
    assert ask(ingester.http, "/readyz") == (200, "ready\n")
    with open_store(ingester.store) as opened:  # through the running process
        opened.execute("ALTER TABLE spans RENAME TO spans_away")
    send(ingester.http, trace_request("lost").SerializeToString())
    eventually(lambda: ask(ingester.http, "/readyz")[0] == 503)
    status, text = ask(ingester.http, "/readyz")
    assert (status, ask(ingester.http, "/healthz")[0]) == (503, 200)
    assert "cannot be stored" in text
    assert "Catalog Error" in text
    assert "spans" not in text
    assert len(text.splitlines()) == 1
    assert str(tmp_path) not in text
    assert send(ingester.http, trace_request("refused").SerializeToString()).status == 503


def test_a_full_spool_is_not_ready(tmp_path: Path) -> None:
    spool = Spool(tmp_path, backlog_bytes=10)
    receiver = Receiver(spool, AccessGuard(), dict, alarms=Alarms())
    try:
        assert health(receiver, "/readyz").status == 200
        spool.append("traces", b"x" * 100).result(LIMIT_S)
        assert health(receiver, "/readyz") == (
            503,
            "not ready: the spool is full: the loader is behind\n",
        )
        assert health(receiver, "/healthz").status == 200
    finally:
        spool.close()


@pytest.mark.parametrize(
    ("name", "reason", "told"),
    [
        (
            "receiving",
            "the spool cannot use '/srv/No space/0000000001.spool' (No space left on device).",
            "No space left on device",
        ),
        (
            "storing",
            'StoreError: Constraint Error: Duplicate key "id: Ada Lovelace" violates it',
            "Constraint Error",
        ),
        ("storing", "StoreError: The file '/srv/t' was deleted or replaced", "was deleted or"),
        (
            "deriving",
            "The worker 7 ended with status -9: it was killed, perhaps because memory ran out",
            "ended with status -9: it was killed, perhaps because memory ran out",
        ),
        ("deriving", "KeyError: 'Ada Lovelace'", "see the log"),
        ("retrying", "the same traces were given up 25 times or more", "given up 25 times"),
    ],
)
def test_health_without_a_token_has_the_reason_without_names(
    name: str, reason: str, told: str, tmp_path: Path
) -> None:
    alarms = Alarms(refuse_after=0)
    alarms.raise_alarm(name, reason)
    spool = Spool(tmp_path)
    try:
        answer = health(Receiver(spool, AccessGuard(), dict, alarms=alarms), "/readyz")
    finally:
        spool.close()
    assert answer.status == 503
    assert told in answer.text
    assert len(answer.text.splitlines()) == 1
    assert not re.search("Ada|srv|[0-9]{10}|worker 7", answer.text)
