"""How much memory DuckDB may use, in bytes."""

MEMORY_BYTES = 512_000_000
LEAST_MEMORY_BYTES = 256_000_000
"""Beyond its limit DuckDB spills to disk, but one conversation must fit into memory."""
