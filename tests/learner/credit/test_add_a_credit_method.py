"""The steps of docs/how-to/add-a-credit-method.md, followed on a copy of the learner."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.running import finish

if TYPE_CHECKING:
    from conftest import Traces

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "add-a-credit-method.md").read_text()
METHOD, LIST, TEST = re.findall(r"`((?:learner|tests)/[\w/.]+\.py)`", PAGE)
BLOCKS = re.findall(r"```(?:python notest|text)\n(.*?)```", PAGE, re.DOTALL)


def files(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*.*") if "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in paths if path.is_file()}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the page names, with its three steps done."""
    copy = tmp_path_factory.mktemp("checkout")
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "learner", copy / "learner", ignore=without)
    for folder in ("support", "learner/credit"):
        shutil.copytree(ROOT / "tests" / folder, copy / "tests" / folder, ignore=without)
    method, line, test = BLOCKS
    for name, text in ((METHOD, method), (TEST, test)):
        assert not (copy / name).exists()
        (copy / name).write_text(text)
    listed = (copy / LIST).read_text()
    (copy / LIST).write_text(listed.replace("NAMES = (\n", f"NAMES = (\n{line}", 1))
    return copy


def run(checkout: Path, *arguments: str) -> str:
    paths = f"{checkout / 'learner'}:{checkout / 'tests'}"
    # Options of the tests that run are not for those of the copy.
    environment = os.environ | {"PYTHONPATH": paths, "PYTEST_ADDOPTS": ""}
    return finish(sys.executable, *arguments, cwd=checkout, env=environment, check=True).stdout


def test_method_is_one_file_one_line_and_one_test(checkout: Path) -> None:
    before = files(ROOT / "learner") | {TEST: ""}
    after = files(checkout / "learner")
    changed = {name for name, text in after.items() if before.get(name) != text}
    in_learner = {name.removeprefix("learner/") for name in (METHOD, LIST)}
    assert changed == in_learner
    listed = LIST.removeprefix("learner/")
    added = set(after[listed].splitlines()) - set(before[listed].splitlines())
    assert added == {BLOCKS[1].rstrip("\n")}


def test_its_test_passes(checkout: Path) -> None:
    result = run(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", TEST)
    assert "1 passed" in result


def test_command_builds_transitions_with_it_and_names_it_in_its_help(
    checkout: Path, traces: "Traces"
) -> None:
    for rollout, value in (("a", 0.9), ("b", 0.1), ("c", 0.1)):
        traces.call(rollout)
        traces.reward(rollout, value)
        traces.task(rollout, "one")
    learn = ("-m", "otel_lightning.learner")
    run(checkout, *learn, "transitions", "--store", traces.store(), "--credit", "above_mean")
    rows = traces.ask("SELECT rollout_id, advantage FROM transition_rows ORDER BY rollout_id")
    assert [tuple(row.values()) for row in rows] == [("a", 1.0), ("b", -1.0), ("c", -1.0)]
    assert "above_mean" in run(checkout, *learn, "transitions", "--help")
