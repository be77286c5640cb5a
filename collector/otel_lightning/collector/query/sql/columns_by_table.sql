-- Columns of each table and view, in their order.
SELECT table_name, list(column_name ORDER BY ordinal_position) AS columns
FROM information_schema.columns
WHERE table_schema = 'main'
GROUP BY table_name
ORDER BY table_name
