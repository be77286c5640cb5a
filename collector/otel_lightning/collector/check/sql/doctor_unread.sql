-- Spans that raised an exception in a dialect's reader.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM spans) AS total,
    min('span ' || u.span_id || ' of trace ' || u.trace_id || ': ' || u.reason) AS example,
    s.scope_name AS kind
FROM unread_spans u
LEFT JOIN spans s USING (trace_id, span_id)
GROUP BY s.scope_name
ORDER BY n DESC, kind
