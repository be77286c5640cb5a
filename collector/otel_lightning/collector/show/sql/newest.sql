SELECT rollout_id FROM rollout_rows ORDER BY start_time DESC, rollout_id LIMIT 1
