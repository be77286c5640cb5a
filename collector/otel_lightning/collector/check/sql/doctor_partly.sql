-- Calls that a dialect read only in part: they lack a model, or have only one of input and completion.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM llm_calls) AS total,
    min('span ' || c.span_id || ' of trace ' || c.trace_id) AS example,
    coalesce(s.scope_name, c.dialect) AS kind
FROM llm_calls c
LEFT JOIN spans s USING (trace_id, span_id)
WHERE c.error_type IS NULL
    AND c.operation IS DISTINCT FROM 'embeddings'
    AND (
        coalesce(c.request_model, c.response_model) IS NULL
        OR (c.input_messages IS NOT NULL AND NOT c.has_completion)
        OR (c.input_messages IS NULL AND c.has_completion)
    )
GROUP BY ALL
ORDER BY n DESC, kind
