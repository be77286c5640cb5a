-- A call whose span had no start time, which a condition on times would not find.
SELECT 1 FROM llm_calls WHERE start_time IS NULL AND rollout_id = $rollout LIMIT 1
