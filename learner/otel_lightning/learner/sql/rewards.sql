-- A judgement with a label but no number, or of nothing that is stored yet, teaches nothing.
SELECT reward_id, rollout_id, span_id, name, value, "time"
FROM rewards
WHERE rollout_id IS NOT NULL AND value IS NOT NULL
