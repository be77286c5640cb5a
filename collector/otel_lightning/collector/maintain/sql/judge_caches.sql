-- Files in which commands kept the answers of a model.
SELECT DISTINCT config ->> '$.cache' AS cache
FROM runs
WHERE command IN ('judge', 'prompts') AND (config ->> '$.cache') IS NOT NULL
