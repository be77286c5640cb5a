"""Clients and a collector that others wrote: what they send is stored, all of it, once."""

import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.otlp_client import column
from support.running import LIMIT_S, Ingester, background, eventually, installing

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT / "tests" / "clients"
CACHE = ROOT / ".cache"
OLD_SDK = "1.38.0"
COUNT = 300


@pytest.fixture(scope="module")
def old_sdk() -> Path:
    """A Python of its own with an SDK of a year ago, made once a machine."""
    folder = CACHE / f"opentelemetry-{OLD_SDK}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, clear=True)
        packages = ["opentelemetry-sdk", "opentelemetry-exporter-otlp"]
        run_or_skip(*installing(python), *(f"{p}=={OLD_SDK}" for p in packages))
        (folder / "ready").touch()
    return python


@pytest.fixture(scope="module")
def javascript() -> Path:
    """A folder with the JavaScript SDK, made once a machine."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    folder = CACHE / "javascript"
    folder.mkdir(parents=True, exist_ok=True)
    pinned = (CLIENTS / "package.json").read_text()
    made = folder / "package.json"
    if not (folder / "node_modules").exists() or made.read_text() != pinned:
        made.write_text(pinned)
        run_or_skip(npm, "install", "--no-audit", "--no-fund", cwd=folder)
    shutil.copy(CLIENTS / "send.mjs", folder)
    return folder


def run_or_skip(*command: str | Path, cwd: Path | None = None) -> None:
    """Install something; where that is not possible the test has nothing to say."""
    process = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if process.returncode:
        pytest.skip(
            f"'{command[0]}' could not install what the test needs: {process.stderr[-300:]}"
        )


def send(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a client to its end."""
    process = subprocess.run(
        [*command, str(COUNT)], cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    assert "error" not in process.stderr.lower()


def assert_all_arrived(ingester: Ingester) -> None:
    """Every span is there, once, with what it said."""
    count = "SELECT count(*) FROM spans"
    eventually(lambda: column(ingester.store, count)[0] >= COUNT)
    positions = "SELECT attributes['position']::INTEGER FROM spans ORDER BY 1"
    assert column(ingester.store, positions) == list(range(COUNT))
    said = "SELECT DISTINCT [name, attributes['words'], events[1].attributes['ok']] FROM spans"
    assert column(ingester.store, said) == [["work", '["é","b"]', "true"]]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_old_python_sdk_is_understood(protocol: str, old_sdk: Path, ingester: Ingester) -> None:
    over_http = f"http://{ingester.http}/v1/traces"
    send(old_sdk, CLIENTS / "send.py", protocol, over_http if protocol == "http" else ingester.grpc)
    assert_all_arrived(ingester)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "protobuf"])
def test_the_javascript_sdk_is_understood(form: str, javascript: Path, ingester: Ingester) -> None:
    send("node", "send.mjs", form, f"http://{ingester.http}/v1/traces", cwd=javascript)
    assert_all_arrived(ingester)


@pytest.mark.slow
@pytest.mark.parametrize("onward", ["grpc", "http"])
def test_what_an_independent_collector_forwards_is_stored(onward: str, ingester: Ingester) -> None:
    with rotel(onward, ingester) as address:
        send(sys.executable, CLIENTS / "send.py", "grpc", address)
        eventually(lambda: column(ingester.store, "SELECT count(*) FROM spans") == [COUNT])
    assert_all_arrived(ingester)


@contextmanager
def rotel(onward: str, ingester: Ingester) -> Iterator[str]:
    """Run rotel in front of the ingester; yields where it takes OTLP over gRPC."""
    package = pytest.importorskip("rotel", reason="rotel has no wheel for this platform")
    agent = Path(package.__file__).parent / "rotel-agent"
    listens, also = free_address(), free_address()
    target = ingester.grpc if onward == "grpc" else ingester.http
    options = {
        "--otlp-grpc-endpoint": listens,
        "--otlp-http-endpoint": also,
        "--exporter": "otlp",
        "--otlp-exporter-endpoint": f"http://{target}",
        "--otlp-exporter-protocol": onward,
        "--batch-timeout": "100ms",
    }
    flags = [part for option in options.items() for part in option]
    with background(agent, "start", *flags, stdout=subprocess.DEVNULL):
        eventually(lambda: answers(listens))
        yield listens


def free_address() -> str:
    """An address of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def answers(address: str) -> bool:
    """Whether somebody listens."""
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
