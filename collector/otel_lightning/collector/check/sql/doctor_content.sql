-- Calls whose messages were not recorded, grouped by instrumentation scope.
WITH calls AS (SELECT * FROM llm_calls WHERE operation IS DISTINCT FROM 'embeddings')
SELECT
    count(*) AS n,
    (SELECT count(*) FROM calls) AS total,
    min('span ' || c.span_id || ' of trace ' || c.trace_id) AS example,
    s.scope_name AS kind
FROM calls c
LEFT JOIN spans s USING (trace_id, span_id)
WHERE c.content IN ('absent', 'redacted') AND c.error_type IS NULL
GROUP BY s.scope_name
ORDER BY n DESC, kind
