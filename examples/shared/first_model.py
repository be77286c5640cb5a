"""The first model of an example: trained from nothing, or as it is shipped for `--quick`.

A shipped model is what `python examples/first_models.py` has trained, in half precision: 0.8 MB
instead of 46 CPU-seconds. With it is the fingerprint of its recipe and its loss, which the tests
compare with the recipe of today.
"""

import json
import shutil
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from shared.recipe import TEMPLATE, Recipe

SEED = 0
ABOUT = "about.json"
FOLDER = "first_model"
COMPARED = 64
"""Demonstrations on which the loss of a shipped model is measured."""


def shipped(example: ModuleType) -> Path:
    """Return the folder of an example's shipped model."""
    return Path(example.__file__ or "").with_name(FOLDER)


def fingerprint(recipe: Recipe, seed: int) -> str:
    """Return a hash of everything that decides how a first model is trained."""
    # Not `asdict`, which copies each of thousands of messages.
    parts = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    content = json.dumps([parts, seed, TEMPLATE], sort_keys=True)
    return sha256(content.encode()).hexdigest()


def put_first_model(example: ModuleType, recipe: Recipe, output: Path) -> str:
    """Copy an example's shipped model to a new folder; return what it is.

    Raises:
        ValueError: If another recipe made it.
    """
    folder = shipped(example)
    about = json.loads((folder / ABOUT).read_text("utf-8"))
    if about["fingerprint"] != fingerprint(recipe, SEED):
        raise ValueError(
            f"{folder} was trained by another recipe than today's. Train it again with: "
            f"python examples/first_models.py {folder.parent.name}"
        )
    shutil.copytree(folder, output)
    return f"as shipped, {about['trained']}"


def write_first_model(example: ModuleType, work: Path) -> Path:
    """Train an example's first model, and write it where it is shipped from; return the folder.

    Args:
        example: The module `task` of the example.
        work: An empty folder for its other files.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from shared.small_model import train

    example.prepare(work)
    recipe = example.recipe(work)
    trained = train(recipe, SEED, work / "base")
    folder = shipped(example)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(work / "base", folder)
    model = AutoModelForCausalLM.from_pretrained(work / "base", local_files_only=True)
    model.to(torch.float16).save_pretrained(folder)
    about = {
        "fingerprint": fingerprint(recipe, SEED),
        "seed": SEED,
        "trained": trained,
        "loss": round(loss_of(folder, recipe), 4),
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return folder


def loss_of(folder: Path, recipe: Recipe) -> float:
    """Return the mean loss per token of a model on the first demonstrations of a recipe."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from shared.small_model import batch_of, encode

    options = {"dtype": torch.float32, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(folder, **options)
    rows = encode(recipe, AutoTokenizer.from_pretrained(folder, local_files_only=True))
    ids, labels = batch_of(rows[:COMPARED])
    with torch.no_grad():
        return float(model(input_ids=ids, labels=labels).loss)
