"""Learned flag files in JavaScript: valid by flagd's own schemas, served by the OpenFeature SDK."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.running import finish

from otel_lightning.learner.policy.serving import flag_document, flag_file, flag_rules

ROOT = Path(__file__).parents[4]
CLIENT = ROOT / "tests" / "clients" / "flagd"
TEXT = """{"$schema": "https://flagd.dev/schema/v0/flags.json",
 "flags": {"prompt": {"state": "ENABLED", "variants": {"brief": "B", "careful": "C", "old": "O"},
  "defaultVariant": "brief", "targeting": {"fractional": [["brief", 1], ["careful", 1]]}}}}
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def javascript() -> Path:
    """A folder with the OpenFeature SDK and flagd's provider, made once a machine."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    packages = (CLIENT / "package.json").read_bytes()
    folder = ROOT / ".cache" / f"javascript-flagd-{sha256(packages).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(CLIENT / "package.json", folder)
    if not (folder / "node_modules").exists():
        install = [npm, "install", "--no-audit", "--no-fund"]
        process = finish(*install, cwd=folder)
        if process.returncode:
            pytest.skip(f"npm could not install flagd's provider: {process.stderr[-300:]}")
    shutil.copy(CLIENT / "serve.cjs", folder)
    return folder


def serve(javascript: Path, path: Path, **context: Any) -> dict[str, Any]:
    """Evaluate the flag for 3,000 targeting keys; the file must be valid by flagd's schemas."""
    contexts = [{"targetingKey": f"ticket-{i}", **context} for i in range(3000)]
    asked = json.dumps({"file": str(path), "key": "prompt", "contexts": contexts})
    process = finish("node", "serve.cjs", cwd=javascript, input=asked, check=True)
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer


def chi_square(served: dict[str, int], shares: dict[str, float]) -> float:
    total = sum(served.values())
    return sum((served.get(a, 0) - total * p) ** 2 / (total * p) for a, p in shares.items() if p)


def written(tmp_path: Path, weights: flag_document.Weights) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(TEXT)
    seen = flag_file.read_with_text(path, "prompt")
    path.write_text(flag_file.text_with_policy(seen, "prompt", weights, "v1"))
    return path


def test_javascript_serves_the_learned_fractions(javascript: Path, tmp_path: Path) -> None:
    path = written(tmp_path, {"brief": 2500, "careful": 7500, "old": 0})
    answer = serve(javascript, path)
    assert "old" not in answer["variants"]
    assert answer["metadata"]["lightning.propensity.careful"] == 0.75
    assert chi_square(answer["variants"], {"brief": 0.25, "careful": 0.75}) < 10.8  # 99.9 %


def test_javascript_serves_the_rules_of_a_policy_that_sees_context(
    javascript: Path, tmp_path: Path
) -> None:
    def weights(cell: flag_rules.Cell) -> dict[str, int]:
        careful = 9000 if cell["refund"] else 4000 if cell["long"] else 1000
        return {"brief": 10_000 - careful, "careful": careful}

    path = written(tmp_path, (("refund", "long"), weights))
    targeting = json.loads(path.read_text())["flags"]["prompt"]["targeting"]
    for cell in flag_rules.cells(("refund", "long")):
        served = serve(javascript, path, **cell)["variants"]
        assert chi_square(served, flag_rules.shares_of_cell(targeting, cell)) < 10.8  # 99.9 %


def test_javascript_serves_the_variants_of_combinations(javascript: Path, tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    other = {
        "state": "ENABLED",
        "variants": {"small": "s", "large": "l"},
        "defaultVariant": "small",
    }
    document = json.loads(TEXT)
    document["flags"]["model"] = other
    path.write_text(json.dumps(document))
    seen = flag_file.read_with_text(path, "prompt+model")
    weights = {"brief+small": 1000, "brief+large": 6000, "careful+small": 3000}
    path.write_text(flag_file.text_with_policy(seen, "prompt+model", weights, "v1"))
    answer = serve(javascript, path)
    assert chi_square(answer["variants"], {"brief": 0.7, "careful": 0.3}) < 10.8  # 99.9 %


def test_file_that_breaks_flagd_s_schema_is_noticed(javascript: Path, tmp_path: Path) -> None:
    path = written(tmp_path, {"brief": 2500, "careful": 7500})
    path.write_text(path.read_text().replace("ENABLED", "MAYBE"))
    with pytest.raises(AssertionError, match="PARSE_ERROR"):
        serve(javascript, path)
