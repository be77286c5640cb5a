-- Rollouts with a single call that requests a tool or reads a tool's response. Such a call usually
-- belongs to a longer rollout whose calls do not share a rollout id.
WITH alone AS (SELECT rollout_id FROM llm_calls WHERE step IS NOT NULL GROUP BY rollout_id HAVING count(*) = 1)
SELECT
    count(*) AS n,
    (SELECT count(DISTINCT rollout_id) FROM llm_calls) AS total,
    min('rollout ' || rollout_id) AS example,
    NULL::VARCHAR AS kind
FROM llm_calls
WHERE rollout_id IN (SELECT rollout_id FROM alone)
    AND step IS NOT NULL
    AND (
        finish_reason = 'tool_calls'
        OR contains(output_messages::VARCHAR, '"tool_call"')
        OR contains(input_messages::VARCHAR, '"tool_call_response"')
        OR (request_params ->> '$.previous_response_id') IS NOT NULL
    )
HAVING count(*) > 0
