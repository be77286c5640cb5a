"""Arrow works without the modules that are left out of the ingester."""

import sys
from pathlib import Path

from support.running import finish

RECORDING = Path(__file__).parents[2] / "data" / "agentops" / "tool.otlp.pb"


def test_arrow_computes_without_its_help_texts() -> None:
    program = """
import sys, warnings
warnings.simplefilter("error")
from otel_lightning.collector.process.light_imports import leave_out_unused
leave_out_unused()
import pyarrow as pa, pyarrow.compute as pc
assert pc.sum(pa.array([1, None, 2]), min_count=1).as_py() == 3
assert pa.chunked_array([[1, 1, 2]]).unique().to_pylist() == [1, 2]
assert "pydoc" not in sys.modules, "the texts are parsed"
"""
    finish(sys.executable, "-c", program, check=True)


def test_loading_and_deriving_import_no_pandas_although_it_is_installed(tmp_path: Path) -> None:
    program = """
import sys
from otel_lightning.collector.cli import main
main(["load", sys.argv[1]], standalone_mode=False)
main(["derive", "--rebuild"], standalone_mode=False)
assert "pandas" not in sys.modules
sys.meta_path[:] = [finder for finder in sys.meta_path if "light_imports" not in repr(finder)]
import pandas
"""
    finish(sys.executable, "-c", program, RECORDING, cwd=tmp_path, check=True)
