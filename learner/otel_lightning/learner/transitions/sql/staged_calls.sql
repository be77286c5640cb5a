-- The calls of changed tasks that become transitions, without text columns. A call with an unknown
-- state gets a state of its own.
CREATE OR REPLACE TEMP TABLE staged_calls AS
WITH tools AS (
    SELECT rollout_id, llm_span_id, count_if(error_type IS NULL) - count_if(error_type IS NOT NULL) AS tools
    FROM tool_calls
    WHERE $tools_count AND llm_span_id IS NOT NULL
    GROUP BY ALL
),
taken AS MATERIALIZED (
    SELECT rollout, rollout_id, task_hash, outcome
    FROM staged_rollouts
    WHERE excluded IS NULL AND task_hash IN (SELECT task_hash FROM changed_tasks)
)
SELECT
    r.rollout, r.task_hash, r.outcome, c.step, c.trace_id, c.span_id,
    if($states_count, hash(coalesce(c.state_hash, c.span_id)), 0) AS state,
    list_sum(c.completion_logprobs) AS behavior_logprob,
    coalesce(t.tools, 0)::DOUBLE AS tools
FROM llm_calls c
JOIN taken r USING (rollout_id)
LEFT JOIN tools t ON t.rollout_id = c.rollout_id AND t.llm_span_id = c.span_id
WHERE c.step IS NOT NULL
    AND c.has_completion
    AND $selected
$ordered
