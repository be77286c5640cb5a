-- Every judgement of a stored rollout; a composition looks for its measures and labels here.
SELECT reward_id, rollout_id, span_id, name, value, label, source, "time"
FROM rewards
WHERE rollout_id IS NOT NULL
