-- Each distinct state with its number of visits, sorted by hash so that the output is stable. Its
-- messages are those of a call with complete messages, if there is one.
WITH states AS (
    SELECT
        t.state_hash,
        count(*) AS visits,
        min(t.task_id) AS task_id,
        min({
            'is_incomplete': coalesce(c.content IN $incomplete, FALSE),
            'trace_id': trace_id,
            'span_id': span_id
        }) AS call
    FROM transitions t
    JOIN llm_calls c USING (trace_id, span_id)
    WHERE t.split IN $splits AND t.state_hash IS NOT NULL
    GROUP BY t.state_hash
)
SELECT
    s.state_hash, s.visits, s.task_id,
    c.content,
    c.input_messages::VARCHAR AS messages,
    c.tool_definitions::VARCHAR AS tools
FROM states s
JOIN llm_calls c ON c.trace_id = s.call.trace_id AND c.span_id = s.call.span_id
ORDER BY s.state_hash
