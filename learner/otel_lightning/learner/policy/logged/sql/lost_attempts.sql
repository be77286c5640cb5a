-- The attempts of those of $runs that rollouts with a choice are of: for each arm, how many were
-- lost, and how many there were. A lost attempt may have left no span, so its arm is taken from its
-- run.
SELECT arm, count(*) FILTER (status = 'lost') AS lost, count(*) AS attempts
FROM attempts
WHERE arm IS NOT NULL AND run_id IN $runs
    AND run_id IN (SELECT run_id FROM attempts WHERE rollout_id IN (SELECT rollout_id FROM logged_choices))
GROUP BY arm
ORDER BY arm
