SELECT t.table_name FROM duckdb_tables() t
JOIN duckdb_columns() c USING (database_name, schema_name, table_name)
WHERE c.column_name = 'trace_id' AND t.database_name = current_database()
