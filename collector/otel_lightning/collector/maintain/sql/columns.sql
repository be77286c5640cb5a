SELECT column_name AS name FROM duckdb_columns()
WHERE database_name = $database AND schema_name = 'main' AND table_name = $table
ORDER BY column_index
