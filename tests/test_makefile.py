"""`make` sets up its own environment, also where one is left that can't be used."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.running import finish

ROOT = Path(__file__).parent.parent


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder in which `make` begins from nothing."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "pyproject.toml").write_text("no TOML: pip stops here, before it fetches anything")
    return tmp_path


def old_python(path: Path) -> Path:
    """Write a Python that says of itself that it is 3.10."""
    path.parent.mkdir(parents=True, exist_ok=True)
    script = "import sys; sys.version_info = (3, 10); exec(sys.argv[1])"
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} -c "{script}" "$2"\n')
    path.chmod(0o755)
    return path


def make(clone: Path, python: object) -> subprocess.CompletedProcess[str]:
    """Set up the environment, up to the packages."""
    return finish("make", "demo", f"PYTHON={python}", cwd=clone, env={"PATH": "/usr/bin:/bin"})


def test_make_names_the_version_of_python_that_is_too_old(clone: Path) -> None:
    answer = make(clone, old_python(clone / "python3.10"))
    assert answer.returncode != 0
    assert f"Python 3.11 or newer is needed, and '{clone / 'python3.10'}' is not" in answer.stderr
    assert not (clone / ".venv").exists()


@pytest.mark.slow
def test_make_replaces_an_environment_of_an_older_python(clone: Path) -> None:
    old_python(clone / ".venv" / "bin" / "python")
    answer = make(clone, sys.executable)
    assert "Installing" in answer.stdout
    finish(clone / ".venv" / "bin" / "python", "-c", "import pip", check=True)
    assert not (clone / ".venv" / "ready").exists()
