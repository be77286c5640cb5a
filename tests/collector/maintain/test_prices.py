"""A price file of the user's: what each model call cost."""

import json
from pathlib import Path

import pytest
from support.otlp_client import column
from support.running import Ingester, cli
from support.spans import SECOND

from otel_lightning.collector.load.from_files import derive_all, load_file
from otel_lightning.collector.maintain.prices import set_prices
from otel_lightning.collector.store import Store, StoreError, open_store


def attribute(key: str, value: str | float) -> dict[str, object]:
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return {"key": key, "value": {kinds[type(value)]: value}}


def stored(tmp_path: Path, **told: str | float) -> Path:
    """Make a store of one call: 1,000 input tokens, of which 400 cached and 100 created, 10 out."""
    usage = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "gpt-x-2026-01-01",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.cache_read.input_tokens": 400,
        "gen_ai.usage.cache_creation.input_tokens": 100,
        "gen_ai.usage.output_tokens": 10,
        **told,
    }
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "name": "chat",
        "startTimeUnixNano": str(SECOND),
        "endTimeUnixNano": str(2 * SECOND),
        "attributes": [attribute(key, value) for key, value in usage.items()],
    }
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    (tmp_path / "call.json").write_text(json.dumps(body))
    with open_store(tmp_path / "traces.duckdb") as store:
        load_file(store, tmp_path / "call.json")
        derive_all(store, tmp_path / "traces.duckdb")
    return tmp_path / "traces.duckdb"


def cost(store: Store) -> float | None:
    told: float | None = store.query("SELECT cost FROM costs")["cost"][0].as_py()
    return told


def test_a_call_costs_what_the_price_file_says(tmp_path: Path) -> None:
    path, prices = stored(tmp_path), tmp_path / "prices.csv"
    prices.write_text(
        "model,input,output,cached_input,cache_creation_input\ngpt,99,99,,\ngpt-x,10,100,1,20\n"
    )
    result = cli("prices", str(prices), "--store", str(path))
    assert (result.returncode, result.stdout) == (0, "2 prices per million tokens.\n")
    with open_store(path) as store:
        assert cost(store) == pytest.approx((500 * 10 + 400 * 1 + 100 * 20 + 10 * 100) / 1e6)


def test_the_price_list_of_litellm_is_read_too(tmp_path: Path) -> None:
    listed = {"openai/gpt-x": {"input_cost_per_token": 1e-5, "litellm_provider": "openai"}}
    (tmp_path / "prices.json").write_text(json.dumps(listed))
    with open_store(stored(tmp_path)) as store:
        assert set_prices(store, tmp_path / "prices.json") == 1
        assert cost(store) == pytest.approx(1000 * 10 / 1e6)


def test_without_a_price_it_is_what_the_instrumentation_says(tmp_path: Path) -> None:
    with open_store(stored(tmp_path, **{"operation.cost": 0.25})) as store:
        assert cost(store) == 0.25


def test_prices_are_set_while_an_ingester_serves_the_store(
    ingester: Ingester, tmp_path: Path
) -> None:
    for price in (1, 2):
        (tmp_path / "prices.csv").write_text(f"model,input\nm,{price}\n")
        result = cli("prices", str(tmp_path / "prices.csv"), "--store", str(ingester.store))
        assert result.stdout == "1 price per million tokens.\n"
    assert column(ingester.store, "SELECT input FROM prices") == [2.0]


def test_a_file_without_prices_changes_nothing(tmp_path: Path) -> None:
    with open_store(stored(tmp_path)) as store:
        for text in ("name,cost\nx,1\n", "model,input\ngpt,dear\n", "model,input\n"):
            (tmp_path / "prices.csv").write_text(text)
            with pytest.raises(StoreError, match=r"prices\.csv"):
                set_prices(store, tmp_path / "prices.csv")
        assert cost(store) is None
