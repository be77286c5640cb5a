-- The call of each span that a reward can name; a part of `staged_rewards`.
WITH judged_tools AS MATERIALIZED (
    SELECT rollout_id, span_id, llm_span_id
    FROM tool_calls
    WHERE llm_span_id IS NOT NULL AND span_id IN (SELECT span_id FROM chosen_rewards)
),
found AS (
    SELECT rollout_id, place AS span_id, min(step) AS step
    FROM (
        SELECT rollout_id, span_id AS place, step
        FROM llm_calls
        WHERE span_id IN (SELECT span_id FROM chosen_rewards)
        UNION ALL
        SELECT rollout_id, unnest(merged_span_ids), step FROM llm_calls WHERE len(merged_span_ids) > 0
        UNION ALL
        SELECT c.rollout_id, t.span_id, c.step
        FROM judged_tools t
        JOIN llm_calls c ON c.rollout_id = t.rollout_id AND c.span_id = t.llm_span_id
    )
    WHERE step IS NOT NULL
    GROUP BY ALL
)
FROM found
