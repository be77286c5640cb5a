-- What users made in the store and `copy_all` does not copy.
SELECT 'table' AS kind, schema_name || '.' || table_name AS name FROM duckdb_tables()
WHERE database_name = current_database() AND schema_name <> 'main'
UNION ALL
SELECT 'view', schema_name || '.' || view_name FROM duckdb_views()
WHERE database_name = current_database() AND schema_name <> 'main' AND NOT internal
UNION ALL
SELECT 'macro', schema_name || '.' || function_name FROM duckdb_functions()
WHERE database_name = current_database() AND NOT internal
UNION ALL
SELECT 'sequence', schema_name || '.' || sequence_name FROM duckdb_sequences()
WHERE database_name = current_database()
UNION ALL
SELECT 'type', schema_name || '.' || type_name FROM duckdb_types()
WHERE database_name = current_database() AND NOT internal
ORDER BY ALL
LIMIT 1
