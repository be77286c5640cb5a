"""From spans and logs to calls, tools, rollouts and rewards. Pure: no DuckDB, no OTLP, no files."""
