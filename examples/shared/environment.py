"""An environment for each framework, made at first use on top of the one that runs this.

Frameworks exclude each other's dependencies: AutoGen needs an older protobuf than OpenTelemetry
allows. So each has a folder of its own for what the environment of this project lacks.
"""

import site
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "examples"


class MissingPackagesError(RuntimeError):
    """The packages of a framework cannot be installed here."""


def python_for(requirements: Path) -> Path:
    """Return the interpreter of an environment with these packages, which is made if need be.

    Raises:
        MissingPackagesError: If pip cannot install them, such as without a network.
    """
    pins = requirements.read_text("utf-8")
    name = sha256(f"{sys.prefix}\n{pins}".encode()).hexdigest()[:12]
    folder = CACHE / f"{requirements.parent.name}-{name}"
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", folder], check=True)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    below = [path for path in site.getsitepackages() if Path(path).is_dir()]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in below]
    (packages / "below.pth").write_text("".join(lines), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    install = [*pip, "--disable-pip-version-check", "--no-compile", "-r", str(requirements)]
    process = subprocess.run(install, capture_output=True, text=True, check=False)
    if process.returncode:
        words = process.stderr.strip().splitlines()
        raise MissingPackagesError(f"pip cannot install {requirements}: {words[-1:]}")
    (folder / "ready").touch()
    return python
