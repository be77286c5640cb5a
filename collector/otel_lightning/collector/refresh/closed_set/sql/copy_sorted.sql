-- Copy the spans of the stale traces that are derived next, sorted by trace.
CREATE OR REPLACE TEMP TABLE gathered AS
SELECT
    trace_id, span_id, parent_span_id, name, kind, start_time, end_time, status_code,
    status_message, scope_name, resource_json, attributes, events, links
FROM spans
JOIN (
    SELECT id, first_time, near
    FROM stale
    WHERE kind = 'trace'
    -- In the order of pick.sql, so that the copy has the traces of the next refreshes.
    QUALIFY sum(spans) OVER (ORDER BY first_time, near NULLS LAST, id) <= $limit
) chosen ON chosen.id = spans.trace_id
ORDER BY chosen.first_time, chosen.near, trace_id
