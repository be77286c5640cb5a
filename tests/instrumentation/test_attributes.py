"""Every attribute that we write is named in one module and explained on one page."""

import re
from pathlib import Path

from support import attributes_page

ROOT = Path(__file__).parents[2]
PARTS = ROOT / "instrumentation" / "otel_lightning" / "instrumentation"


def test_the_page_of_attributes_is_as_its_module() -> None:
    assert attributes_page.PAGE.read_text() == attributes_page.page(), (
        "write it again with: python tests/support/attributes_page.py"
    )


def test_no_module_spells_an_attribute_of_ours_itself() -> None:
    for module in PARTS.glob("*.py"):
        if module.name != "attributes.py":
            code = re.sub(r'"""(?s:.*?)"""', "", module.read_text())
            assert not re.findall(r'"lightning\.[a-z_.]+"', code), module.name
