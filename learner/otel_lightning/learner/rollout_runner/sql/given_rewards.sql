-- The scores of one grader for these rollouts as a whole.
SELECT rollout_id, arg_max(value, "time") AS value
FROM scores
WHERE rollout_id IN $rollouts AND name = $reward AND span_id IS NULL AND value IS NOT NULL
GROUP BY rollout_id
