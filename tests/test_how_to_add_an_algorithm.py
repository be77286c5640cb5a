"""The steps of docs/how-to/add-an-algorithm.md, on a copy of the sources."""

import os
import re
import shutil
import sys
from pathlib import Path

from support.running import finish

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "how-to" / "add-an-algorithm.md").read_text()
FOLDER = "learner/otel_lightning/learner/weights/algorithms"

USE = """
from otel_lightning.learner.weights import algorithms
from otel_lightning.learner.weights.examples import Example

shortest = algorithms.load("shortest")
long, short, bad = [
    Example(str(i), "a", "train", None, (4,), completion, None, 1.0, reward, reward, reward)
    for i, (completion, reward) in enumerate([((7, 7, 1), 1.0), ((8, 1), 1.0), ((1,), -1.0)])
]
print(shortest.rows([long, short, bad], shortest.Settings()))
"""


def test_an_algorithm_is_its_own_file_and_one_line(tmp_path: Path) -> None:
    roots = ("instrumentation", "collector", "learner")
    for root in roots:
        shutil.copytree(ROOT / root, tmp_path / root)
    file, line = re.findall(r"```python notest\n(.*?)```", PAGE, re.DOTALL)
    assert f"`{FOLDER}/shortest.py`" in PAGE
    (tmp_path / FOLDER / "shortest.py").write_text(file)
    named = tmp_path / FOLDER / "__init__.py"
    named.write_text(named.read_text().replace("ALGORITHMS = {\n", f"ALGORITHMS = {{\n{line}"))
    path = os.pathsep.join(str(tmp_path / root) for root in roots)
    environment = os.environ | {"PYTHONPATH": path}

    def python(*words: str) -> str:
        return finish(sys.executable, *words, env=environment, check=True).stdout

    rows = "[{'input_ids': [4, 8, 1], 'labels': [-100, 8, 1]}]"
    assert python("-c", USE).strip() == rows
    told = " ".join(python("-m", "otel_lightning.learner", "weights", "--help").split())
    assert "shortest: Fine-tune on the shortest good completion" in told
