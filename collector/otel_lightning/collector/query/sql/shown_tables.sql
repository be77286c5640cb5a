-- Tables and views of a served store, without the answers that are kept for its readers.
SELECT table_name
FROM information_schema.tables
WHERE table_schema = 'main' AND table_catalog <> $answers
ORDER BY ALL
