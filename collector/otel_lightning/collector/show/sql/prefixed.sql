SELECT rollout_id
FROM rollout_rows
WHERE starts_with(rollout_id, $asked)
ORDER BY start_time DESC, rollout_id
LIMIT $most
