SELECT epoch_ns(coalesce("time", observed_time)) AS time_ns, trace_id, span_id, event_name,
    body, attributes, resource, scope_name, epoch_ns(observed_time) AS observed_ns
FROM logs
WHERE $condition
-- The order in which they were received, which decides between records with equal times.
ORDER BY rowid
