-- Sorted by time, so that the last judgement of a rollout counts.
SELECT
    rollout_id, name, source, value, label
FROM rewards
WHERE rollout_id IS NOT NULL
ORDER BY "time", reward_id
