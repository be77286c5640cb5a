"""The columns of the derived tables of an open store."""

from weakref import WeakKeyDictionary

import pyarrow as pa

from otel_lightning.collector.derive.tables import TABLES
from otel_lightning.collector.store import Store

_SCHEMAS: WeakKeyDictionary[Store, dict[str, pa.Schema]] = WeakKeyDictionary()


def schemas(store: Store) -> dict[str, pa.Schema]:
    """Return the columns of each table that deriving fills, for `Batch.tables`.

    They stay the same while a store is open, so they are asked for once.
    """
    if store not in _SCHEMAS:
        # The column that `rollout_rows` fills in later is not derived.
        derived = "SELECT COLUMNS(name -> name <> 'placed_rollout_id') FROM {} LIMIT 0"
        _SCHEMAS[store] = {table: store.query(derived.format(table)).schema for table in TABLES}
    return _SCHEMAS[store]
