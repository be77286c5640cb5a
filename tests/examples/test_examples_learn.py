"""The quick form of an example, whole: agents work, a model learns, and held-out tasks tell."""

import importlib
import os
import re
import sys
from pathlib import Path

import pytest
from support.running import finish

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
ROW = re.compile(r"^\| (before|after|control): .* \| T = 1 \| ([\d.]+) \|.*\|$", re.MULTILINE)
GAIN = re.compile(r"\| ([+-][\d.]+) \| \[([+-][\d.]+), ([+-][\d.]+)\]")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["search"])
def test_quick_form_learns_from_rewards_and_not_from_shuffled_ones(
    name: str, tmp_path: Path
) -> None:
    from shared.environment import MissingPackagesError, python_for

    task = importlib.import_module(f"{name}.task")
    try:
        python_for(EXAMPLES / name / "requirements.txt")
    except MissingPackagesError as missing:
        pytest.skip(f"the framework cannot be installed here: {missing}")
    command = [sys.executable, str(EXAMPLES / "run.py"), name, "--quick", "--folder", str(tmp_path)]
    done = finish(*command, env=os.environ | {"OMP_NUM_THREADS": "1"}, seconds=900, check=True)
    rows = {found[1]: found[0] for found in ROW.finditer(done.stdout)}
    assert set(rows) == {"before", "after", "control"}, done.stdout
    assert f"Held out: {task.HELD_OUT}" in done.stdout
    found = GAIN.search(rows["after"]), GAIN.search(rows["control"])
    after, control = ([float(number) for number in one.groups()] for one in found if one)
    # The standard error of a gain over 60 tasks is 0.07; that of rewards was 0.40, that of shuffled
    # ones -0.02. Each bound is 3 standard errors or more away.
    assert after[1] > 0, done.stdout
    assert control[1] < 0.1, done.stdout
    assert after[0] - control[0] > 0.1, done.stdout
