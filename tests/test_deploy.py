"""What we ship to run `lightning-ingest` as a service fits what it does."""

import re
import shlex
from pathlib import Path

from click import Option
from support.environment_page import uses

from otel_lightning.collector.cli import main
from otel_lightning.collector.receive.http.health import PATHS
from otel_lightning.collector.serve.run import FAILED
from otel_lightning.collector.serve.stop_signals import DRAIN_SECONDS

ROOT = Path(__file__).parent.parent
CONTAINER = (ROOT / "Containerfile").read_text()
PAGES = "".join((ROOT / "docs" / "how-to").joinpath(name).read_text()
                for name in ("run-under-systemd.md", "run-in-a-container.md"))  # fmt: skip


UNIT = dict(
    line.split("=", 1)
    for line in (ROOT / "deploy" / "lightning-ingest.service").read_text().splitlines()
    if "=" in line and not line.startswith("#")
)


def test_the_unit_starts_a_command_that_exists() -> None:
    command = shlex.split(UNIT["ExecStart"])
    assert command[0].endswith("/lightning-ingest")
    assert command[1] in main.commands


def test_the_unit_gives_it_time_to_drain_and_starts_it_again_when_it_failed() -> None:
    assert int(UNIT["TimeoutStopSec"]) > DRAIN_SECONDS
    assert UNIT["Restart"] == "on-failure"
    assert UNIT["RestartPreventExitStatus"] != str(FAILED)


def test_only_variables_that_are_read_are_set() -> None:
    text = (ROOT / "deploy" / "lightning-ingest.service").read_text() + CONTAINER + PAGES
    assert set(re.findall(r"\b(LIGHTNING_\w+)=", text)) <= uses().keys()


def test_the_image_probes_a_path_that_is_answered_and_installs_wheels_only() -> None:
    probed = re.findall(r":4318(/\w+)", CONTAINER)
    assert probed
    assert set(probed) <= set(PATHS)
    assert "--only-binary :all:" in CONTAINER
    assert "otel-lightning[collector]" in CONTAINER
    ports = {str(o.default).rpartition(":")[2] for o in main.commands["serve"].params
             if isinstance(o, Option) and o.name in ("grpc", "http")}  # fmt: skip
    assert set(re.findall(r"^EXPOSE (.*)$", CONTAINER, re.MULTILINE)[0].split()) == ports


def test_the_probes_of_the_pages_are_answered() -> None:
    assert set(re.findall(r"path: (/\w+)", PAGES)) == set(PATHS)
