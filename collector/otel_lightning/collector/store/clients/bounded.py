"""Tell statements whose memory is bounded by their input from statements that may need any amount.

DuckDB's memory limit covers sorts, joins and groups, which spill to disk. It does not cover the
texts and lists that functions create: one `repeat` can allocate gigabytes beyond the limit.
So a reader's statement runs in the receiving process only if no function in it returns more bytes
than it takes. Every other statement runs in a separate process with a hard memory limit.
"""

from typing import Any

from otel_lightning.collector.store.syntax_tree import nodes

BOUNDED = frozenset({
    # operators
    "+", "-", "*", "/", "//", "%", "~~", "!~~", "~~*", "!~~*", "like_escape", "ilike_escape",
    "not_like_escape", "->", "->>", "&", "|", "<<", ">>", "^", "**", "@>", "<@", "&&",
    # aggregates and windows
    "count", "count_star", "count_if", "sum", "min", "max", "avg", "mean", "median", "mode",
    "quantile", "quantile_cont", "quantile_disc", "approx_quantile", "approx_count_distinct",
    "arg_min", "arg_max", "arg_max_null", "arg_min_null", "min_by", "max_by", "any_value", "first",
    "last", "bool_and", "bool_or", "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp",
    "var_pop", "corr", "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile",
    "lag", "lead", "first_value", "last_value", "nth_value",
    # texts
    "length", "len", "strlen", "lower", "upper", "lcase", "ucase", "substr", "substring", "left",
    "right", "trim", "ltrim", "rtrim", "contains", "starts_with", "prefix", "suffix", "ends_with",
    "strpos", "instr", "position", "regexp_matches", "regexp_full_match", "regexp_extract", "ascii",
    "levenshtein", "jaccard", "jaro_winkler_similarity", "md5", "md5_number_lower",
    "md5_number_upper", "sha256", "hash",
    # values
    "coalesce", "ifnull", "nullif", "if", "greatest", "least", "abs", "round", "floor", "ceil",
    "ceiling", "trunc", "sqrt", "ln", "log", "log10", "log2", "exp", "pow", "power", "sign",
    "isnan", "isinf", "isfinite", "typeof", "error",
    # parts of maps, lists, structs and JSON
    "array_extract", "list_extract", "list_element", "element_at", "map_extract",
    "map_extract_value", "map_contains", "map_keys", "map_values", "struct_extract",
    "array_length", "list_contains", "array_contains", "list_has", "cardinality", "unnest",
    "list_avg", "list_min", "list_max", "list_sum",
    "json_extract", "json_extract_string", "json_extract_path", "json_extract_path_text",
    "json_array_length", "json_type", "json_exists", "json_valid", "json_keys",
    # times
    "now", "today", "current_date", "current_timestamp", "get_current_timestamp", "date_trunc",
    "datetrunc", "date_part", "datepart", "date_diff", "datediff", "date_sub", "date_add",
    "epoch", "epoch_ms", "epoch_us", "epoch_ns", "make_timestamp", "make_timestamp_ns", "year",
    "month", "day", "hour", "minute", "second", "strftime", "age", "time_bucket", "to_timestamp",
    "to_days", "to_hours", "to_minutes", "to_seconds", "to_milliseconds", "to_microseconds",
})  # fmt: skip
JOINING = frozenset({"||", "concat", "concat_ws", "list_value", "struct_pack", "row"})
"""Functions whose result is as large as all their arguments together. Each at most doubles a value,
so a few of them are allowed."""
MOST_JOINING = 4
"""Allowed number of `JOINING` functions in a statement: a value grows at most 16 times."""
ROWS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
"""Table functions that stream rows. Used as scalar functions, the first two build a whole list."""
ABOUT_THE_DATABASE = ("duckdb_", "pragma_")
"""Prefixes of the table functions that list the catalog; clients call them when they attach."""


def is_bounded(tree: Any) -> bool:
    """Return whether a statement, as DuckDB's syntax tree, creates no more data than it reads.

    An unknown function counts as unbounded.
    """
    joining = 0
    row_makers: set[int] = set()
    for node in nodes(tree):  # a TABLE_FUNCTION node comes before the function node inside it
        kind = node.get("type")
        if kind == "RECURSIVE_CTE_NODE":
            return False
        if kind == "TABLE_FUNCTION":
            row_makers.add(id(node.get("function")))
        name = str(node.get("function_name", "")).lower()
        if name in JOINING:
            joining += 1
        elif id(node) in row_makers and name.startswith(ABOUT_THE_DATABASE):
            continue
        elif name and name not in (ROWS if id(node) in row_makers else BOUNDED):
            return False
    return joining <= MOST_JOINING
