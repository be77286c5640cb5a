-- Delete the stored copies of some spans.
DELETE FROM spans USING {rows} b
WHERE spans.start_time BETWEEN make_timestamp_ns($low) AND make_timestamp_ns($high)
    AND spans.trace_id = b.trace_id AND spans.span_id = b.span_id AND spans.start_time = b.start_time
