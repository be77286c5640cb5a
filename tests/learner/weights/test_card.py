"""The model card: where a model comes from, and under which licence its base is."""

from pathlib import Path

import pytest

from otel_lightning.learner.weights.card import UNDECLARED, Card, model_card

GATE = {
    "passed": True,
    "refusals": [],
    "estimator": "doubly_robust",
    "gain": 0.25,
    "lower": 0.125,
    "upper": 0.375,
}


def card(base: Path) -> list[str]:
    config = {"algorithm": "rft", "model": str(base), "lora": None}
    return model_card(Card("run-1", config, "ab12", {"train_loss": 0.5}, GATE)).splitlines()


@pytest.mark.parametrize("through_a_pointer", [False, True])
def test_licence_that_the_base_declares_is_in_the_head_and_in_the_text(
    tmp_path: Path, *, through_a_pointer: bool
) -> None:
    (tmp_path / "base").mkdir()
    text = "---\nlanguage: en\nlicense: apache-2.0\n---\n# Base\nlicense: of nothing\n"
    (tmp_path / "base" / "README.md").write_text(text)
    (tmp_path / "live").symlink_to(tmp_path / "base")
    written = card(tmp_path / ("live" if through_a_pointer else "base"))
    head = written[1 : written.index("---", 1)]
    assert "license: apache-2.0" in head
    assert "- Licence: apache-2.0" in written


@pytest.mark.parametrize(
    "text", [None, "", "# Base\nlicense: mit\n", "---\nlanguage: en\n---\nlicense: mit\n"]
)
def test_licence_that_the_base_does_not_declare_is_not_made_up(
    text: str | None, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "README.md").write_text(text)
    written = card(tmp_path)
    assert not [line for line in written if line.startswith("license:")]
    assert f"- Licence: {UNDECLARED}" in written
