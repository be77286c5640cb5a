-- The statements that make the tables and views of $source that this store lacks, in the order in
-- which they were made.
SELECT kind, name, sql FROM (
    SELECT 'table' AS kind, table_name AS name, sql, table_oid AS oid
    FROM duckdb_tables() WHERE database_name = $source AND schema_name = 'main'
    UNION ALL
    SELECT 'view', view_name, sql, view_oid
    FROM duckdb_views() WHERE database_name = $source AND schema_name = 'main' AND NOT internal
)
WHERE name NOT IN (SELECT table_name FROM duckdb_tables() WHERE database_name = current_database())
    AND name NOT IN (SELECT view_name FROM duckdb_views() WHERE database_name = current_database())
ORDER BY oid
