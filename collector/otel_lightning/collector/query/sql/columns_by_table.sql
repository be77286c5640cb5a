-- Columns of each table and view, in their order, without the answers kept for readers.
SELECT table_name, list(column_name ORDER BY ordinal_position) AS columns
FROM information_schema.columns
WHERE table_schema = 'main' AND table_catalog <> $answers
GROUP BY table_name
ORDER BY table_name
