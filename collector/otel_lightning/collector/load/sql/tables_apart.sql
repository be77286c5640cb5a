-- The tables that hold nothing of traces, so that deleting traces does not make them smaller.
SELECT schema_name AS schema, table_name AS name FROM duckdb_tables()
WHERE database_name = current_database() AND NOT temporary
    AND table_name NOT IN ('rejected', 'rollout_tasks', 'stale')
    AND (schema_name, table_name) NOT IN (
        SELECT (schema_name, table_name) FROM duckdb_columns()
        WHERE database_name = current_database() AND column_name = 'trace_id')
ORDER BY ALL
