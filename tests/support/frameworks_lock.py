"""Pin the newest versions of frameworks: `PYTHONPATH=tests python -m support.frameworks_lock NAME`.

NAME is an environment, such as `langgraph`; without names all are pinned again. For JavaScript,
change the versions in `npm/NAME/package.json` and run `npm install --package-lock-only` there.
Then run `make test-frameworks`, and write the page again.
"""

import sys
import tempfile
from pathlib import Path

from support.agent_trials import ROOT, pins_of
from support.frameworks import FRAMEWORKS, RETRIEVERS, Framework
from support.running import INSTALL_S, finish


def newest(framework: Framework) -> str:
    """Return the pins of a new environment with the newest packages and otel-lightning's own."""
    with tempfile.TemporaryDirectory() as folder:
        finish(sys.executable, "-m", "venv", folder, check=True)
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip"]
        # Two steps: AutoGen's and OpenTelemetry's ranges of protobuf exclude each other.
        for packages in (["-e", str(ROOT), *framework.instrumentation], framework.packages):
            finish(*pip, "install", "--quiet", *packages, check=True, seconds=INSTALL_S)
        freeze = [*pip, "freeze", "--exclude-editable", "--exclude", "otel-lightning"]
        return finish(*freeze, check=True).stdout


def main(names: list[str]) -> None:
    """Write the pins of each named environment, or of all."""
    environments = {one.folder: one for one in (*RETRIEVERS, *FRAMEWORKS) if not one.javascript}
    for name in names or environments:
        pins_of(environments[name]).write_text(newest(environments[name]))


if __name__ == "__main__":
    main(sys.argv[1:])
