"""The steps of docs/how-to/add-a-dialect.md, followed on a copy of the collector."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.running import finish

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "add-a-dialect.md").read_text()
DIALECT, TEST = re.findall(r"`((?:collector|tests)/[\w/.]+\.py)`", PAGE)
BLOCKS = re.findall(r"```python notest\n(.*?)```", PAGE, re.DOTALL)
ALL = """
from otel_lightning.collector.derive.dialects import FAMILIES
print(*[family.name for family in FAMILIES])
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the page names, with its steps done."""
    copy = tmp_path_factory.mktemp("checkout")
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "collector", copy / "collector", ignore=without)
    shutil.copytree(ROOT / "tests" / "support", copy / "tests" / "support", ignore=without)
    for name, text in zip((DIALECT, TEST), BLOCKS, strict=True):
        assert not (copy / name).exists()
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    return copy


def run(checkout: Path, *arguments: str) -> str:
    paths = f"{checkout / 'collector'}:{checkout / 'tests'}"
    # Options of the tests that run are not for those of the copy.
    environment = os.environ | {"PYTHONPATH": paths, "PYTEST_ADDOPTS": ""}
    return finish(sys.executable, *arguments, cwd=checkout, env=environment, check=True).stdout


def test_a_dialect_is_one_file_and_one_test(checkout: Path) -> None:
    paths = (path for path in checkout.rglob("*.*") if "__pycache__" not in path.parts)
    files = [path.relative_to(checkout) for path in paths if path.is_file()]
    different = {
        str(one)
        for one in files
        if not (ROOT / one).exists() or (ROOT / one).read_bytes() != (checkout / one).read_bytes()
    }
    assert different == {DIALECT, TEST}


def test_its_test_passes(checkout: Path) -> None:
    said = run(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", TEST)
    assert "2 passed" in said


def test_it_is_asked_before_the_dialects_that_are_known(checkout: Path) -> None:
    names = run(checkout, "-c", ALL).split()
    assert names == [
        *("acme", "nat", "openinference", "traceai", "trulens", "mastra", "mlflow", "langfuse"),
        *(
            "langsmith",
            "vercel",
            "litellm",
            "claude_code",
            "codex",
            "gemini_cli",
            "livekit",
            "openrouter",
            "promptfoo",
            "promptlayer",
            "monocle",
        ),
        *("langtrace", "openai_agents", "indexed", "semconv", "haystack", "braintrust"),
        *("observed", "effect_ai", "honeyhive", "semconv"),
    ]
