-- The calls that become transitions, of tasks with news; narrow, and in the order of the buckets.
CREATE OR REPLACE TEMP TABLE staged_calls AS
WITH tools AS (
    SELECT rollout_id, llm_span_id, count_if(error_type IS NULL) - count_if(error_type IS NOT NULL) AS tools
    FROM tool_calls
    WHERE {tools_count} AND llm_span_id IS NOT NULL
    GROUP BY ALL
)
SELECT
    r.task_hash, r.task_id, r.outcome,
    c.rollout_id, c.step, c.trace_id, c.span_id, c.agent_name, c.state_hash,
    list_sum(c.completion_logprobs) AS behavior_logprob,
    coalesce(t.tools, 0)::DOUBLE AS tools,
    r.arm.key AS arm_key, r.arm.arm AS arm, r.arm.propensity AS propensity,
    r.arm.policy_version AS policy_version
FROM llm_calls c
JOIN staged_rollouts r USING (rollout_id)
LEFT JOIN tools t ON t.rollout_id = c.rollout_id AND t.llm_span_id = c.span_id
WHERE r.excluded IS NULL
    AND r.task_hash IN (SELECT task_hash FROM changed_tasks)
    AND c.step IS NOT NULL
    AND (coalesce(len(c.completion_token_ids) > 0, FALSE) OR c.output_messages IS NOT NULL)
    AND {selected}
ORDER BY r.task_hash
