-- What was judged again counts as last judged.
SELECT
    rollout_id, name, source, value, label
FROM rewards
WHERE rollout_id IS NOT NULL
ORDER BY "time", reward_id
