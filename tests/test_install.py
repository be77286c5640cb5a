"""Each extra installed alone from the wheel, as a user gets it, runs what README says.

Nothing here may lean on what the developers' environment has: an import of a package that only
another extra brings is an error in these environments and nowhere else.
"""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import sys
import sysconfig
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution, distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.running import INSTALL_S, LIMIT_S, background, finish, installing, written_by

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
    """Pip's options for the newest versions, or the lowest that are allowed."""
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
    target = folder / "venv" / "bin"
    if python == sys.executable:
        finish(interpreter, "-m", "venv", "--without-pip", folder / "venv", check=True)
        pip: list[str | Path] = [*installing(target / "python")]
    else:  # this environment's pip may be too old for it
        finish(interpreter, "-m", "venv", folder / "venv", check=True)
        pip = [target / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    asked = [*constraints(extra, versions, folder), f"{wheel}[{extra}]"]
    finish(*pip, *asked, check=True, seconds=INSTALL_S)
    return target


def needed(extra: str) -> set[str]:
    """Name the packages that are required with one extra, directly or by one another."""
    found, asked = set[tuple[str, str]](), [("otel-lightning", ""), ("otel-lightning", extra)]
    while asked:
        name, extra = asked.pop()
        if (name, extra) not in found:
            found.add((name, extra))
            for required in map(Requirement, requires(name) or []):
                if not required.marker or required.marker.evaluate({"extra": extra}):
                    other = canonicalize_name(required.name)
                    asked += [(other, more) for more in ("", *required.extras)]
    return {name for name, _ in found} - {"otel-lightning"}


def files(package: Distribution) -> list[str]:
    """Name what a package put into site-packages."""
    names = (row[0] for row in csv.reader((package.read_text("RECORD") or "").splitlines()))
    return [name for name in names if not name.startswith("..") and not name.endswith(".pyc")]


def link(wheel: Path, extra: str, folder: Path) -> Path:
    """Install the wheel beside the packages of one extra alone, in the versions of constraints.txt.

    They are linked from this environment, for which pip took just these versions. A folder that
    several packages share, such as `opentelemetry`, is linked file by file.
    """
    venv = folder / "venv"
    finish(sys.executable, "-m", "venv", "--without-pip", venv, check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    tops = ({name.split("/")[0] for name in files(package)} for package in distributions())
    owners = Counter(top for package in tops for top in package)
    for package in map(distribution, needed(extra)):
        split = ((name.split("/")[0], name) for name in files(package))
        for name in {top if owners[top] == 1 else name for top, name in split}:
            (packages / name).parent.mkdir(parents=True, exist_ok=True)
            (packages / name).symlink_to(str(package.locate_file(name)))
    pip = installing(venv / "bin" / "python")
    finish(*pip, "--no-deps", wheel, check=True, seconds=INSTALL_S)
    return venv / "bin"


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


def test_the_collector_alone_with_the_tested_versions(wheel: Path, tmp_path: Path) -> None:
    receive_and_ask(Installed(link(wheel, "collector", tmp_path), tmp_path))


@pytest.mark.parametrize("versions", ["newest", "lowest"])
def test_the_collector_installed_alone_receives_and_answers(
    wheel: Path, versions: str, tmp_path: Path
) -> None:
    installed = Installed(install(wheel, "collector", versions, sys.executable, tmp_path), tmp_path)
    receive_and_ask(installed)


@pytest.mark.parametrize("python", ["python3.12", "python3.13"])
def test_the_collector_runs_on_newer_pythons(wheel: Path, python: str, tmp_path: Path) -> None:
    installed = Installed(install(wheel, "collector", "newest", python, tmp_path), tmp_path)
    receive_and_ask(installed)


def learn_alone(installed: Installed) -> None:
    installed.run("lightning-ingest", "load", *map(str, RECORDINGS))
    learn(installed)


def test_the_learner_alone_with_the_tested_versions(wheel: Path, tmp_path: Path) -> None:
    learn_alone(Installed(link(wheel, "learner", tmp_path), tmp_path))


@pytest.mark.parametrize("versions", ["newest", "lowest"])
def test_the_learner_installed_alone_learns(wheel: Path, versions: str, tmp_path: Path) -> None:
    learn_alone(Installed(install(wheel, "learner", versions, sys.executable, tmp_path), tmp_path))
