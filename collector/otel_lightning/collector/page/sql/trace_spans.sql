SELECT
    span_id, parent_span_id, name, kind, service_name, status_code,
    epoch_ns(start_time) AS start_ns, epoch_ns(end_time) AS end_ns
FROM spans
WHERE
    trace_id = $trace
    AND (
        $after_ns IS NULL
        OR (
            start_time >= make_timestamp_ns($after_ns)
            AND (start_time > make_timestamp_ns($after_ns) OR span_id > $after_id)
        )
    )
ORDER BY start_time, span_id
LIMIT $rows
