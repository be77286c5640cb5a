"""One distribution from three source roots: what would break an install without a message."""

import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from support.running import INSTALL_S, finish

ROOT = Path(__file__).parent.parent
PARTS = ("instrumentation", "collector", "learner")
HEAVY = ("click", "duckdb", "numpy", "polars", "pyarrow", "torch", "trl")
ENTRY_POINTS = {
    "opentelemetry_instrumentor": "otel_lightning.instrumentation.instrumentor",
    "opentelemetry_pre_instrument": "otel_lightning.instrumentation.instrumentor",
}


@pytest.mark.parametrize("part", PARTS)
def test_the_namespace_has_no_init_file_that_would_hide_the_other_parts(part: str) -> None:
    assert not (ROOT / part / "otel_lightning" / "__init__.py").exists()


@pytest.mark.parametrize("part", PARTS)
def test_each_part_says_that_it_is_typed(part: str) -> None:
    assert (ROOT / part / "otel_lightning" / part / "py.typed").is_file()


def test_the_instrumentation_loads_nothing_heavy_into_the_agent() -> None:
    modules = (ROOT / "instrumentation/otel_lightning/instrumentation").glob("*.py")
    names = [f"otel_lightning.instrumentation.{module.stem}" for module in modules]
    assert len(names) > 1
    script = (
        "import importlib, sys\n"
        f"for name in {names}: importlib.import_module(name)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert finish(sys.executable, "-c", script, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("group", "module"), ENTRY_POINTS.items())
def test_opentelemetry_finds_us_by_our_entry_points(group: str, module: str) -> None:
    (entry,) = entry_points(group=group, name="otel_lightning")
    assert entry.module == module
    assert callable(entry.load())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wheel", "editable"])
def test_uninstalling_leaves_nothing_behind(wheel: Path, tmp_path: Path, way: str) -> None:
    venv = tmp_path / "venv"
    finish(sys.executable, "-m", "venv", "--without-pip", venv, check=True)
    python = str(venv / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet"]
    pip += ["--disable-pip-version-check"]

    def files() -> set[str]:
        return {str(path.relative_to(venv)) for path in venv.rglob("*")}

    before = files()
    # The dependencies stay when a user uninstalls us, so they are not installed here.
    what = (wheel,) if way == "wheel" else ("-e", ROOT)
    finish(*pip, "install", "--no-deps", *what, check=True, seconds=INSTALL_S)
    added = files() - before
    assert any(name.endswith("site-packages/zz_otel_lightning.pth") for name in added)
    assert any(name.endswith("bin/lightning-ingest") for name in added)
    # A start of Python that runs our start-up file compiles more of our modules.
    loaded = "import sys; print('otel_lightning.instrumentation.start' in sys.modules)"
    said = finish(python, "-c", loaded, env={"LIGHTNING_INSTRUMENT": "false"}, check=True)
    assert said.stdout == "True\n"
    finish(*pip, "uninstall", "--yes", "otel-lightning", check=True)
    assert files() - before == set()
    quiet = finish(python, "-c", "pass", env={"OTEL_SERVICE_NAME": "desk"}, check=True)
    assert quiet.stderr == ""


@pytest.mark.slow
def test_the_wheel_holds_the_three_parts_and_both_entry_points(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (listing,) = (name for name in names if name.endswith("entry_points.txt"))
        text = archive.read(listing).decode()
    assert {f"otel_lightning/{part}/py.typed" for part in PARTS} <= set(names)
    assert "otel_lightning/__init__.py" not in names
    top = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert top == {"otel_lightning", "zz_otel_lightning.pth"}
    for group, module in ENTRY_POINTS.items():
        assert f"[{group}]\notel_lightning = {module}:" in text
