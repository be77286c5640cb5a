SELECT table_name AS name FROM duckdb_tables()
WHERE database_name = $database AND schema_name = 'main' ORDER BY table_name
