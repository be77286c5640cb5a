"""The Collector configuration that we ship keeps what it acknowledges.

No Collector runs here; each test names one thing that was seen to lose spans, or to keep one from
starting, when a real Collector ran with it.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
CONFIGURATION: dict[str, Any] = yaml.safe_load((ROOT / "otel-collector.yaml").read_text())
EXPORTER = CONFIGURATION["exporters"]["otlp_http"]
PIPELINES = CONFIGURATION["service"]["pipelines"]


def test_the_queue_lies_on_disk_and_is_synced() -> None:
    storage = EXPORTER["sending_queue"]["storage"]
    assert storage in CONFIGURATION["service"]["extensions"]
    assert CONFIGURATION["extensions"][storage]["fsync"] is True
    assert CONFIGURATION["extensions"][storage]["create_directory"] is True


def test_it_never_gives_up() -> None:
    assert EXPORTER["retry_on_failure"]["enabled"] is True
    assert EXPORTER["retry_on_failure"]["max_elapsed_time"] == "0s"


def test_nothing_waits_in_memory_before_the_queue() -> None:
    for pipeline in PIPELINES.values():
        assert pipeline["processors"] == ["memory_limiter"]
    assert not any(name.startswith("batch") for name in CONFIGURATION["processors"])


def test_what_it_batches_fits_into_one_request() -> None:
    batch = EXPORTER["sending_queue"]["batch"]
    spans_of_16_kib = batch["max_size"] * 16 * 1024
    assert batch["min_size"] <= batch["max_size"] <= EXPORTER["sending_queue"]["queue_size"]
    assert spans_of_16_kib <= 64 * 1024 * 1024


def test_it_opens_no_port_but_those_of_otlp_on_loopback() -> None:
    assert CONFIGURATION["service"]["telemetry"]["metrics"]["level"] == "none"
    protocols = CONFIGURATION["receivers"]["otlp"]["protocols"]
    assert {name: p["endpoint"] for name, p in protocols.items()} == {
        "grpc": "127.0.0.1:4317",
        "http": "127.0.0.1:4318",
    }


@pytest.mark.parametrize("kind", ["receivers", "processors", "exporters"])
def test_every_part_is_defined_and_used(kind: str) -> None:
    used = {name for pipeline in PIPELINES.values() for name in pipeline[kind]}
    assert used == set(CONFIGURATION[kind])


def test_what_we_store_has_a_pipeline() -> None:
    assert set(PIPELINES) == {"traces", "logs"}
