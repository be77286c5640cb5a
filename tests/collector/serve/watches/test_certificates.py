"""A certificate that expires while it is served is told in time."""

from collections.abc import Callable

import pytest
from support.certificates import Authority
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import Ingester, cli_here, eventually

from otel_lightning.collector.alarms import CERTIFYING, Alarms, read_alarms
from otel_lightning.collector.receive.tls import Tls
from otel_lightning.collector.serve.watches.certificates import CertificateWatch


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def tls(authority: Authority) -> Tls:
    folder = authority.folder
    return Tls(folder / "first.pem", folder / "first.key", folder / "ca.pem")


def test_an_alarm_is_raised_in_time_and_cleared_by_another_certificate(
    authority: Authority,
) -> None:
    alarms = Alarms()
    begin, end = tls(authority).validities()[0][1:]
    now = begin + 0.85 * (end - begin)
    watch = CertificateWatch(tls(authority), alarms, clock=lambda: now)
    watch.look()
    assert not alarms.raised()
    for later, verb in ((begin + 0.95 * (end - begin), "expires at"), (end + 1, "expired at")):
        now = later
        watch.look()
        (alarm,) = alarms.raised()
        assert (alarm.name, alarms.refusal()) == (CERTIFYING, None)
        assert "first.pem" in alarm.reason
        assert verb in alarm.reason
    now = begin + 0.5 * (end - begin)
    watch.look()
    assert not alarms.raised()


def test_a_clock_before_the_certificate_is_an_alarm(authority: Authority) -> None:
    alarms = Alarms()
    begin = tls(authority).validities()[0].begin
    CertificateWatch(tls(authority), alarms, clock=lambda: begin - 1).look()
    assert "valid only from" in alarms.raised()[0].reason


def test_the_authority_of_clients_counts_too(authority: Authority) -> None:
    ours, theirs = tls(authority).validities()
    assert theirs.end > ours.end  # openssl's default is 30 days
    alarms = Alarms()
    CertificateWatch(tls(authority), alarms, clock=lambda: theirs.end + 1).look()
    assert "ca.pem" in alarms.raised()[0].reason


def test_a_served_certificate_that_has_expired_is_reported_until_another_one_is_on_disk(
    authority: Authority, starter: Callable[..., Ingester], capfd: pytest.CaptureFixture[str]
) -> None:
    authority.sign("first", "expired", "-days", "-1")
    running = starter(*authority.options("expired"))
    eventually(lambda: [one.name for one in read_alarms(running.store)] == [CERTIFYING])
    result = cli_here("check", "--store", str(running.store))
    assert result.returncode == 1
    assert "live.pem' expired at" in result.stdout
    live = authority.folder / "live.pem"
    live.write_text("not a certificate")
    log = ""

    def is_logged() -> bool:
        nonlocal log
        log += capfd.readouterr().err
        return "The certificates stay as they were" in log

    eventually(is_logged)
    assert cli_here("check", "--store", str(running.store)).returncode == 1
    authority.install("second")  # nobody sends a signal
    eventually(lambda: read_alarms(running.store) == [])
    body = trace_request("one").SerializeToString()
    assert send(running.http, body, tls=authority.context()).status == 200
    assert running.stop() == 0
    assert (log + capfd.readouterr().err).count("The certificates stay as they were") == 1


def test_files_that_are_replaced_one_after_the_other_are_read_when_they_fit(
    authority: Authority,
) -> None:
    authority.install("first")
    folder, reads = authority.folder, []
    live = Tls(folder / "live.pem", folder / "live.key")
    watch = CertificateWatch(live, Alarms())
    watch.renew = lambda: reads.append(live.versions())
    watch.look()
    assert reads == []
    live.cert.write_bytes((folder / "second.pem").read_bytes())
    watch.look()
    assert reads == []  # the key is missing
    live.key.write_bytes((folder / "second.key").read_bytes())
    watch.look()
    watch.look()
    assert reads == [live.versions()]
    live.key.unlink()
    for _ in range(3):
        watch.look()
    assert len(reads) == 2  # once more, so that the log says what is wrong
