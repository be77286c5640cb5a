"""Arrow works without the modules that are left out of the ingester."""

import sys

from support.running import finish


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
