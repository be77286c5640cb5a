SELECT t.schema_name AS schema, t.table_name AS name FROM duckdb_tables() t
JOIN duckdb_columns() c USING (database_name, schema_name, table_name)
WHERE c.column_name = $column AND t.database_name = current_database() AND NOT t.temporary
ORDER BY ALL
