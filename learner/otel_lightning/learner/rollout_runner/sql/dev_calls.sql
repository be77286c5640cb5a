-- Per attempt: its model calls, whether they name its task, their token ids, and its choices of arms.
SELECT
    a.rollout_id,
    a.task_id,
    r.task_id AS recorded_task,
    coalesce(r.llm_calls, 0) AS llm_calls,
    (SELECT count(completion_token_ids) FROM llm_calls c WHERE c.rollout_id = a.rollout_id) AS with_tokens,
    (SELECT list(m.key || '=' || m.arm) FROM arms m WHERE m.rollout_id = a.rollout_id) AS arms,
    (SELECT count(*) FROM arms m WHERE m.rollout_id = a.rollout_id AND m.propensity IS NULL) AS without_propensity
FROM attempts a
LEFT JOIN rollouts r USING (rollout_id)
WHERE a.rollout_id IN $rollouts
ORDER BY a.rollout_id
