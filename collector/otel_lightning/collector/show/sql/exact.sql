SELECT rollout_id FROM rollout_rows WHERE rollout_id = $asked
