import json
from pathlib import Path

import pytest
from support.logged_choices import UNIFORM


@pytest.fixture
def flag_file(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    flag = {
        "state": "ENABLED",
        "variants": {arm: f"Be {arm}." for arm in UNIFORM},
        "defaultVariant": "brief",
        "targeting": {"fractional": [[arm, 1] for arm in UNIFORM]},
    }
    path.write_text(json.dumps({"flags": {"support-prompt": flag}}))
    return path
