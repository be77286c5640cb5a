-- Each distinct state with its number of visits, sorted by hash so that the output is stable.
WITH states AS (
    SELECT
        state_hash,
        count(*) AS visits,
        min(task_id) AS task_id,
        min({'trace_id': trace_id, 'span_id': span_id}) AS call
    FROM transitions
    WHERE split IN $splits AND state_hash IS NOT NULL
    GROUP BY state_hash
)
SELECT
    s.state_hash, s.visits, s.task_id,
    c.input_messages::VARCHAR AS messages,
    c.tool_definitions::VARCHAR AS tools
FROM states s
JOIN llm_calls c ON c.trace_id = s.call.trace_id AND c.span_id = s.call.span_id
ORDER BY s.state_hash
