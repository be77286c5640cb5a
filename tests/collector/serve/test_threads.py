"""A process that can no longer store what it acknowledges ends, so that it is started again."""

import subprocess
import sys
from pathlib import Path

import pytest

BREAK_AND_SERVE = """
import sys
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.spool import Spool
from otel_lightning.collector.store import StoreError

def fail(self, *_arguments):
    raise StoreError("the file is broken")

{broken} = {how}
from otel_lightning.collector.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("broken", "how", "told"),
    [
        ("Loader.run", "lambda self: None", "the loader thread ended by itself"),
        ("Spool._write", "lambda self: None", "the spool thread ended by itself"),
        ("Loader.__init__", "fail", "the file is broken"),
    ],
    ids=["loader", "spool", "store"],
)
def test_a_thread_that_dies_ends_the_process(
    broken: str, how: str, told: str, tmp_path: Path
) -> None:
    script = BREAK_AND_SERVE.format(broken=broken, how=how)
    addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    command = [sys.executable, "-c", script, "serve", "--store", str(tmp_path / "t"), *addresses]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert told in ended.stderr
