"""The Collector configuration that we ship keeps what it acknowledges, and its page says what not.

No Collector runs here. A real one (0.156) was run with this configuration; each test names one
statement of the page that rests on what was seen then, as far as it can be checked without it.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import Ingester

from otel_lightning.collector.receive.accept import MAX_BODY_BYTES

ROOT = Path(__file__).parent.parent.parent
CONFIGURATION: dict[str, Any] = yaml.safe_load((ROOT / "otel-collector.yaml").read_text())
PAGE = (ROOT / "docs" / "how-to" / "put-a-collector-in-front.md").read_text()
EXPORTER = CONFIGURATION["exporters"]["otlp_http"]
RECEIVER = CONFIGURATION["receivers"]["otlp"]["protocols"]
STORAGE = CONFIGURATION["extensions"]["file_storage"]
PIPELINES = CONFIGURATION["service"]["pipelines"]
MIB = 1024 * 1024
Starter = Callable[..., Ingester]


def default_of(value: str) -> str:
    """Return what `${env:NAME:-default}` is without the variable."""
    return re.sub(r"\$\{env:\w+:-(.*?)\}", r"\1", value)


def test_the_queue_is_on_disk_and_is_synced() -> None:
    assert EXPORTER["sending_queue"]["storage"] in CONFIGURATION["service"]["extensions"]
    assert STORAGE["fsync"] is True
    assert STORAGE["create_directory"] is True


def test_it_never_gives_up() -> None:
    assert EXPORTER["retry_on_failure"]["enabled"] is True
    assert EXPORTER["retry_on_failure"]["max_elapsed_time"] == "0s"


def test_nothing_waits_in_memory_before_the_queue() -> None:
    for pipeline in PIPELINES.values():
        assert pipeline["processors"] == ["memory_limiter"]
    assert not any(name.startswith("batch") for name in CONFIGURATION["processors"])


def test_batches_are_counted_in_bytes_and_fit_into_one_request_of_ours() -> None:
    batch = EXPORTER["sending_queue"]["batch"]
    assert batch == {
        "flush_timeout": "200ms",
        "sizer": "bytes",
        "min_size": 1_000_000,
        "max_size": 33_554_432,
    }
    assert batch["max_size"] <= MAX_BODY_BYTES // 2
    assert f"`max_size: {batch['max_size']}`" in PAGE


def test_one_request_to_its_receivers_fits_into_one_of_ours() -> None:
    """By default they take 4 MiB over gRPC and 20 MiB over HTTP, less than we do."""
    assert 4 < RECEIVER["grpc"]["max_recv_msg_size_mib"] <= MAX_BODY_BYTES // MIB
    assert 20 * MIB < RECEIVER["http"]["max_request_body_size"] <= MAX_BODY_BYTES
    assert "The configuration sets both to 32 MiB" in PAGE
    assert RECEIVER["grpc"]["max_recv_msg_size_mib"] == 32
    assert RECEIVER["http"]["max_request_body_size"] == 32 * MIB


def test_the_token_is_sent_as_our_receiver_wants_it(starter: Starter) -> None:
    sent = EXPORTER["headers"]["authorization"].replace("${env:LIGHTNING_TOKEN:-}", "secret")
    body = trace_request("s").SerializeToString()
    with_token = starter("--token", "secret")
    assert send(with_token.http, body, Authorization=sent).status == 200


def test_without_a_token_the_empty_header_does_no_harm(ingester: Ingester) -> None:
    sent = default_of(EXPORTER["headers"]["authorization"])
    body = trace_request("s").SerializeToString()
    assert send(ingester.http, body, Authorization=sent).status == 200


def test_a_probe_with_the_token_shows_what_the_collector_would_lose(starter: Starter) -> None:
    """401 and 403 are permanent for the Collector: 20 acknowledged, 0 stored."""
    assert "/readyz" in PAGE
    http = starter("--token", "secret").http
    right = "Bearer secret"
    asked = {"path": "/readyz", "method": "GET", "Content_Type": ""}
    assert send(http, **asked, Authorization=right).status == 200
    assert send(http, **asked, Authorization="Bearer wrong").status == 401
    assert send(http, **asked, Authorization="Bearer ").status == 401
    assert send(http, **asked, Authorization=right, Host="other.example").status == 403


def test_the_queues_file_is_compacted_in_a_folder_that_exists() -> None:
    """It had 766 MB after everything was sent; compaction brought 229 MB to 0."""
    compaction = STORAGE["compaction"]
    assert compaction["on_start"] is True
    assert compaction["on_rebound"] is True
    assert compaction["directory"] == STORAGE["directory"]


def test_it_listens_on_loopback_by_default() -> None:
    assert CONFIGURATION["service"]["telemetry"]["metrics"]["level"] == "none"
    endpoints = {name: one["endpoint"] for name, one in RECEIVER.items()}
    assert {name: default_of(one) for name, one in endpoints.items()} == {
        "grpc": "127.0.0.1:4317",
        "http": "127.0.0.1:4318",
    }
    for endpoint in endpoints.values():
        assert re.search(r"\w+(?=:-)", endpoint)[0] in PAGE  # type: ignore[index]
    assert "`0.0.0.0:4317`" in PAGE


@pytest.mark.parametrize("kind", ["receivers", "processors", "exporters"])
def test_every_part_is_defined_and_used(kind: str) -> None:
    used = {name for pipeline in PIPELINES.values() for name in pipeline[kind]}
    assert used == set(CONFIGURATION[kind])


def test_what_we_store_has_a_pipeline_and_metrics_have_none() -> None:
    assert set(PIPELINES) == {"traces", "logs"}
    assert "`/v1/metrics` is answered with 404" in PAGE


def test_the_page_lists_every_variable_of_the_configuration() -> None:
    used = set(re.findall(r"\$\{env:(\w+)", (ROOT / "otel-collector.yaml").read_text()))
    assert used == set(re.findall(r"^\| `(LIGHTNING_\w+)`", PAGE, re.MULTILINE))


def test_the_tls_settings_that_worked_are_on_the_page() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.partition("\n## TLS\n")[2], re.DOTALL)
    shown = yaml.safe_load(block)
    assert set(shown["tls"]) == {"ca_file", "cert_file", "key_file"}
    assert shown["headers"]["authorization"].startswith("Bearer ")
