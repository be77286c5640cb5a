-- Searches that came to their end, and those whose prompts were found but could not be written.
SELECT DISTINCT run_id
FROM runs
WHERE starts_with(run_id, $prefix) AND (
    outcome <> 'failed'
    OR run_id IN (SELECT run_id FROM prompts WHERE starts_with(refused, 'not written: '))
)
ORDER BY run_id
