"""The reference page of the attributes that we write, from the module that names them.

`python tests/support/attributes_page.py` writes it.
"""

import ast
import itertools
from pathlib import Path

from otel_lightning.instrumentation import attributes

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "attributes.md"
HEAD = """# Attributes

What otel-lightning writes on spans, events and log records. Names that begin with `lightning.` are
its own; the others are OpenTelemetry's.

| attribute | meaning |
|---|---|
"""


def page() -> str:
    """Write the page: each constant of the module with the text below it."""
    assert attributes.__file__
    body = ast.parse(Path(attributes.__file__).read_text()).body
    rows = []
    for node, below in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert isinstance(below, ast.Expr)
            text = ast.literal_eval(below.value)
            meaning = " ".join(text.split()).replace("|", "\\|")
            rows.append(f"| `{getattr(attributes, node.target.id)}` | {meaning} |\n")
    return HEAD + "".join(sorted(rows))


if __name__ == "__main__":
    PAGE.write_text(page())
