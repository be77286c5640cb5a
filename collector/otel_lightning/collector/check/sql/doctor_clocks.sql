-- Spans that began before their parent span in another service: the two clocks differ.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM spans) AS total,
    min('span ' || c.span_id || ' of trace ' || c.trace_id) AS example,
    c.service_name || ' below ' || p.service_name AS kind
FROM spans c
JOIN spans p ON p.trace_id = c.trace_id AND p.span_id = c.parent_span_id
WHERE c.service_name <> p.service_name AND c.start_time < p.start_time - INTERVAL 100 MILLISECONDS
GROUP BY ALL
ORDER BY n DESC, kind
