"""`lightning-ingest prices`: read a price file, from which the view `costs` computes costs."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from otel_lightning.collector.store import Store, StoreError
from otel_lightning.collector.terminal.text_input import read_text

PER_MILLION = ("input", "output", "cached_input", "cache_creation_input")
LITELLM = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_creation_input": "cache_creation_input_token_cost",
}
"""Names of the same prices in LiteLLM's price list, which are per token."""
SCHEMA = pa.schema(
    [("model", pa.string()), ("provider", pa.string())]
    + [(name, pa.float64()) for name in PER_MILLION]
)


def set_prices(store: Store, path: Path) -> int:
    """Replace all prices of a store by those of a file.

    Args:
        store: A direct or served store.
        path: A CSV or JSON file. CSV has the columns `model` and `input`, and optionally
            `provider`, `output`, `cached_input` and `cache_creation_input`; prices are per million
            tokens. JSON is a list of such objects, an object by model name, or LiteLLM's price
            list (per token).

    Returns:
        The number of prices.

    Raises:
        StoreError: If the file has another form; the prices are not changed.
    """
    rows = [_price(row, path) for row in _rows(path)]
    # LiteLLM's list also has models that are not priced by tokens, such as those for images.
    priced = [row for row in rows if row["input"] is not None]
    if not priced:
        raise StoreError(
            f"'{path}' has no prices. Give each model a row with: model, input, output"
            " (per million tokens)."
        )
    with store.transaction():
        store.execute("DELETE FROM prices")
        store.insert("prices", pa.Table.from_pylist(priced, SCHEMA))
    return len(priced)


def _rows(path: Path) -> list[Mapping[str, Any]]:
    text = read_text(path)
    if path.suffix.lower() != ".json":
        return list(csv.DictReader(text.splitlines()))
    try:
        value = json.loads(text)
    except ValueError as error:
        raise StoreError(f"'{path}' is not JSON: {error}") from error
    if isinstance(value, Mapping):
        value = [
            {"model": model, **prices}
            for model, prices in value.items()
            if isinstance(prices, Mapping)
        ]
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _price(row: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the prices of one model, per million tokens.

    LiteLLM prefixes some model names with the provider; the prefix is removed.
    """
    if not row.get("model"):
        raise StoreError(f"'{path}' has a row without a model: {dict(row)}")
    model, provider = str(row["model"]), row.get("provider") or row.get("litellm_provider")
    model = model.removeprefix(f"{provider}/")
    prices = {name: _number(row.get(name), 1, path) for name in PER_MILLION}
    for name, key in LITELLM.items():
        if prices[name] is None:
            prices[name] = _number(row.get(key), 1e6, path)
    return {"model": model, "provider": provider or None, **prices}


def _number(value: Any, times: float, path: Path) -> float | None:
    if value is None or value == "":
        return None
    try:
        return float(value) * times
    except (TypeError, ValueError) as error:
        raise StoreError(f"'{path}' has the price {value!r}, which is not a number.") from error
