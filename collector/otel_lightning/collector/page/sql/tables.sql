SELECT c.table_name, string_agg(c.column_name, ', ' ORDER BY c.column_index) AS columns
FROM duckdb_columns() c
WHERE c.schema_name = 'main' AND c.database_name = current_database() AND NOT c.internal
GROUP BY c.table_name
ORDER BY c.table_name
