"""The first models that the examples ship: made by their recipes, and by nothing else."""

import importlib
import json
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("calculator", "room_booking", "search", "text_to_sql")
sys.path.insert(0, str(EXAMPLES))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_shipped_model_is_what_its_recipe_made(name: str, tmp_path: Path) -> None:
    from shared.first_model import ABOUT, fingerprint, loss_of, shipped

    example = importlib.import_module(f"{name}.task")
    example.prepare(tmp_path)
    recipe, folder = example.recipe(tmp_path), shipped(example)
    about = json.loads((folder / ABOUT).read_text())
    assert about["fingerprint"] == fingerprint(recipe, about["seed"])
    # A model that was not trained on these demonstrations has a loss of about 7.
    assert loss_of(folder, recipe) == pytest.approx(about["loss"], abs=0.02)
    assert about["loss"] < 0.6
    assert (folder / "model.safetensors").stat().st_size < 1_000_000


@pytest.mark.slow
def test_model_of_another_recipe_is_not_taken(tmp_path: Path) -> None:
    from dataclasses import replace

    from shared.first_model import put_first_model

    example = importlib.import_module("room_booking.task")
    recipe = example.recipe(tmp_path)
    with pytest.raises(ValueError, match=r"python examples/first_models\.py room_booking"):
        put_first_model(example, replace(recipe, steps=recipe.steps + 1), tmp_path / "base")
    assert put_first_model(example, recipe, tmp_path / "base").startswith("as shipped, ")
    assert (tmp_path / "base" / "tokenizer.json").exists()
