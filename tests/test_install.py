"""Each extra installed alone from the wheel, as a user gets it, runs what README says.

Nothing here may lean on what the developers' environment has: an import of a package that only
another extra brings is an error in these environments and nowhere else.
"""

import json
import os
import re
import shlex
import shutil
import signal
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.running import INSTALL_S, LIMIT_S, background, finish, written_by

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
RECORDINGS = [DATA / "traceloop_openai" / "tool.otlp.pb", DATA / "agentlightning" / "tool.otlp.pb"]
TABLES = ("spans", "logs", "llm_calls", "tool_calls", "agent_runs", "rewards", "arms", "rollouts")
TORCH = "torch==2.13.0"
"""Without a constraint pip takes a build with several gigabytes of CUDA."""

SHOW_TABLES = """
import sys
from click.testing import CliRunner
from otel_lightning.collector.cli import main

for table in sys.argv[1:]:
    for form in ("table", "json", "csv"):
        words = ["sql", f"FROM {table} LIMIT 3", "--format", form]
        assert CliRunner().invoke(main, words, catch_exceptions=False).exit_code == 0, words
"""
"""One process for all: what is tested is that each form finds its packages."""

pytestmark = pytest.mark.slow


def lowest_versions(extra: str) -> str:
    """Constrain each requirement of an extra to the lowest version that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["collector"]]
    asked += extras["learner"] if extra == "learner" else []
    found = (re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", text) for text in asked)
    lowest = {match[1]: match[2] for match in found if match}
    return "".join(f"{name}=={version}\n" for name, version in lowest.items())


def constraints(extra: str, versions: str, folder: Path) -> list[str]:
    """Pip's options for the tested versions, the newest ones, or the lowest that are allowed."""
    if versions == "tested":
        return ["--constraint", str(ROOT / "constraints.txt")]
    file = folder / "constraints.txt"
    file.write_text(lowest_versions(extra) if versions == "lowest" else TORCH)
    return ["--constraint", str(file)]


def interpreters(python: str) -> Iterator[str]:
    """Where a Python may be: on PATH, or kept by pyenv beside the one that is chosen."""
    yield shutil.which(python) or python
    versions = Path.home() / ".pyenv" / "versions"
    yield from map(str, versions.glob(f"{python.removeprefix('python')}.*/bin/{python}"))


def runs(interpreter: str) -> bool:
    """Return whether it is there: pyenv has launchers for Pythons that it does not have."""
    try:
        return finish(interpreter, "-V").returncode == 0
    except OSError:
        return False


def install(wheel: Path, extra: str, versions: str, python: str, folder: Path) -> Path:
    """Install the wheel with one extra into an environment of its own; return its bin folder."""
    interpreter = next(filter(runs, interpreters(python)), None)
    if not interpreter:
        pytest.skip(f"{python} is not on this machine")
    finish(interpreter, "-m", "venv", folder / "venv", check=True)
    target = folder / "venv" / "bin"
    pip = [target / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    asked = [*constraints(extra, versions, folder), f"{wheel}[{extra}]"]
    finish(*pip, *asked, check=True, seconds=INSTALL_S)
    return target


class Installed:
    """Commands of an environment, run where the checkout can't be imported."""

    def __init__(self, bin_folder: Path, folder: Path) -> None:
        self.bin_folder = bin_folder
        self.folder = folder
        self.environment = {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "LIGHTNING_HTTP": "127.0.0.1:0",
            "LIGHTNING_GRPC": "127.0.0.1:0",
            "LIGHTNING_NO_BROWSER": "true",
        }
        (folder / "tests").symlink_to(ROOT / "tests")  # README loads a recording of a clone

    def run(self, *command: str) -> str:
        """Run a command to its end; its standard output."""
        return finish(*command, cwd=self.folder, env=self.environment, check=True).stdout

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Run `lightning-ingest` for the block; yields its address for HTTP."""
        told = self.folder / "traces.duckdb.server"
        with background("lightning-ingest", cwd=self.folder, env=self.environment) as process:
            yield json.loads(written_by(process, told))["http"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0


def readme_commands(program: str) -> list[list[str]]:
    """What README's console blocks tell a user to type, beside starting the server."""
    lines = re.findall(rf"^\$ ({program} .+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines]


def receive_and_ask(installed: Installed) -> None:
    """Load, serve, ask and check, with what the collector's extra alone brings."""
    installed.run("lightning-ingest", "--version")
    installed.run("lightning-ingest", "load", *map(str, RECORDINGS))
    with installed.serving() as http:
        reward = {"name": "solved", "value": 1, "trace_id": "a" * 32}
        request = urllib.request.Request(
            f"http://{http}/v1/feedback",
            json.dumps(reward).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            assert answer.status == 200
        for command in readme_commands("lightning-ingest"):
            installed.run(*command)
    installed.run("python", "-c", SHOW_TABLES, *TABLES)
    assert json.loads(
        installed.run(
            "lightning-ingest",
            "sql",
            "SELECT count(*) > 0 AS read FROM llm_calls",
            "--format",
            "json",
        )
    ) == [{"read": True}]
    installed.run("lightning-ingest", "derive", "--rebuild")
    installed.run("lightning-ingest", "check", "--deep")


def learn(installed: Installed) -> None:
    """Reward, build and export, with what the learner's extra alone brings."""
    rule = installed.folder / "rule.sql"
    rule.write_text("SELECT rollout_id, 1.0 AS value FROM rollouts\n")
    installed.run("lightning-learn", "transitions", "--reward", str(rule), "--idle", "0")
    exported = installed.folder / "rows.jsonl"
    installed.run("lightning-learn", "export", "--form", "trl-grpo", "--output", str(exported))
    assert exported.read_text().count("\n") > 0
    for command in readme_commands("lightning-learn"):
        installed.run(*command)


@pytest.mark.parametrize("versions", ["tested", "newest", "lowest"])
def test_the_collector_installed_alone_receives_and_answers(
    wheel: Path, versions: str, tmp_path: Path
) -> None:
    installed = Installed(install(wheel, "collector", versions, "python3", tmp_path), tmp_path)
    receive_and_ask(installed)


@pytest.mark.parametrize("python", ["python3.12", "python3.13"])
def test_the_collector_runs_on_newer_pythons(wheel: Path, python: str, tmp_path: Path) -> None:
    installed = Installed(install(wheel, "collector", "newest", python, tmp_path), tmp_path)
    receive_and_ask(installed)


@pytest.mark.parametrize("versions", ["tested", "newest", "lowest"])
def test_the_learner_installed_alone_learns(wheel: Path, versions: str, tmp_path: Path) -> None:
    installed = Installed(install(wheel, "learner", versions, "python3", tmp_path), tmp_path)
    installed.run("lightning-ingest", "load", *map(str, RECORDINGS))
    learn(installed)
