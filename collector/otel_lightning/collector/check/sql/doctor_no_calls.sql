-- Spans were received and derived, and none of them is a model call.
SELECT
    0 AS n,
    count(*) AS total,
    'span ' || min(span_id || ' of trace ' || trace_id) AS example,
    NULL::VARCHAR AS kind
FROM spans
WHERE NOT EXISTS (FROM llm_calls) AND NOT EXISTS (FROM stale)
HAVING count(*) > 0
