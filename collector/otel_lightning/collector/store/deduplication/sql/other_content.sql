-- Positions of the spans of a batch whose ids are stored, but with other content. A stored span with
-- the same content has the same start time, so only the batch's range of start times is read.
SELECT b.position
FROM {rows} b
ANTI JOIN (
    FROM spans WHERE start_time BETWEEN make_timestamp_ns($low) AND make_timestamp_ns($high) OR start_time IS NULL
) t
    ON t.trace_id = b.trace_id
    AND t.span_id = b.span_id
    AND t.name IS NOT DISTINCT FROM b.name
    AND t.parent_span_id IS NOT DISTINCT FROM b.parent_span_id
    AND t.start_time IS NOT DISTINCT FROM b.start_time
    AND t.end_time IS NOT DISTINCT FROM b.end_time
    AND t.status_code IS NOT DISTINCT FROM b.status_code
    AND list_sort(map_entries(t.attributes))::VARCHAR
        IS NOT DISTINCT FROM list_sort(map_entries(b.attributes))::VARCHAR
ORDER BY position
