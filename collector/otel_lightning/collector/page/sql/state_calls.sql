WITH calls AS (
    SELECT
        rollout_id, step, start_time, agent_name,
        -- part: short_messages
    FROM llm_calls
    WHERE state_hash = $state
)
SELECT
    c.rollout_id, c.step, epoch_ns(c.start_time) AS start_ns, c.agent_name, t.arm, t.reward, t.return_to_go,
    t.advantage,
    if(length(c.output) < $most_text, c.output, NULL) AS answer,
    if(length(c.input) < $most_text, c.input, NULL) AS question
FROM calls c
LEFT JOIN transition_rows t ON t.rollout_id = c.rollout_id AND t.step = c.step
ORDER BY t.return_to_go DESC NULLS LAST, c.rollout_id
LIMIT $rows
