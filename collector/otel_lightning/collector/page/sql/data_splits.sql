-- Exactly one call of each rollout has no next one.
SELECT
    split, count(*) AS transitions, count(*) FILTER (next_span_id IS NULL) AS rollouts,
    count(DISTINCT task_hash) AS tasks
FROM transition_rows
GROUP BY split
ORDER BY split
