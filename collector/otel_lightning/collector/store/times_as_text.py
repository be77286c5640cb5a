"""Times as text, for what turns Arrow's values into Python's.

Python's `datetime` has no nanoseconds. PyArrow converts a time that is not whole microseconds
through pandas, and fails where pandas is not installed: the extra `collector` does not bring it.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

Choice = Callable[[pa.DataType], bool]


def is_time(kind: pa.DataType) -> bool:
    """Return whether a type is a time of any unit."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def has_nanoseconds(kind: pa.DataType) -> bool:
    """Return whether a type is a time that Python has no type for."""
    return is_time(kind) and kind.unit == "ns"


def times_as_text(column: Any, is_chosen: Choice = is_time) -> Any:
    """Return a column, shape [N], with text in place of the times in it, at any depth.

    Args:
        column: An array or a chunked array. Times in a union stay: Arrow casts no union.
        is_chosen: Tells for a type whether it is a time to replace.
    """
    kind = _as_text(column.type, is_chosen)
    return column if kind == column.type else column.cast(kind)


def all_times_as_text(rows: pa.Table) -> pa.Table:
    """Return a table with text in place of all times in it; two columns may have one name."""
    return pa.table([times_as_text(column) for column in rows.columns], rows.column_names)


def _as_text(kind: pa.DataType, is_chosen: Choice) -> pa.DataType:
    if is_chosen(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(_as_text(kind.key_type, is_chosen), _as_text(kind.item_type, is_chosen))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_as_text(kind.value_type, is_chosen), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type, is_chosen))
    if pa.types.is_struct(kind):
        return pa.struct(
            [field.with_type(_as_text(field.type, is_chosen)) for field in kind.fields]
        )
    return kind
