"""Pin the newest versions of frameworks: `PYTHONPATH=tests python -m support.frameworks_lock NAME`.

NAME is an environment, such as `langgraph`; without names all are pinned again. For JavaScript,
change the versions in `npm/NAME/package.json` and run `npm install --package-lock-only` there.
Then run `make test-frameworks`, and write the page again.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from support.agent_trials import ROOT, pins_of
from support.frameworks import FRAMEWORKS, RETRIEVERS, Framework


def newest(framework: Framework) -> str:
    """Return the pins of a new environment with the newest packages and otel-lightning's own."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip"]
        # Two steps: AutoGen's and OpenTelemetry's ranges of protobuf exclude each other.
        for wanted in (["-e", str(ROOT), *framework.instrumentation], framework.packages):
            subprocess.run([*pip, "install", "--quiet", *wanted], check=True)
        freeze = [*pip, "freeze", "--exclude-editable", "--exclude", "otel-lightning"]
        return subprocess.run(freeze, check=True, capture_output=True, text=True).stdout


def main(names: list[str]) -> None:
    """Write the pins of each named environment, or of all."""
    known = {one.folder: one for one in (*RETRIEVERS, *FRAMEWORKS) if not one.javascript}
    for name in names or known:
        pins_of(known[name]).write_text(newest(known[name]))


if __name__ == "__main__":
    main(sys.argv[1:])
