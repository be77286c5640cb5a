-- Rollouts, newest first; one without text cannot be judged.
SELECT
    rollout_id,
    list(DISTINCT agent_name) AS agents,
    bool_or(
        output_messages IS NOT NULL AND coalesce(content, '') NOT IN ('absent', 'redacted')
    ) AS has_text
FROM llm_calls
WHERE rollout_id IS NOT NULL
GROUP BY rollout_id
ORDER BY max(start_time) DESC, rollout_id
