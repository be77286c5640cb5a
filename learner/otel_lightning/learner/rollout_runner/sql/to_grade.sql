-- What a grading command reads of each attempt.
SELECT
    a.rollout_id, a.task_id, a.sample, a.status, a.exit_code, a.output, a.errors,
    k.input::VARCHAR AS input, k.expected::VARCHAR AS expected, k.metadata::VARCHAR AS metadata
FROM attempts a
LEFT JOIN tasks k USING (task_id)
WHERE a.rollout_id IN $rollouts
ORDER BY a.rollout_id
