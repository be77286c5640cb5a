SELECT
    count(*) AS spans, epoch_ns(min(start_time)) AS start_ns, epoch_ns(max(end_time)) AS end_ns,
    count(*) FILTER (status_code = 'ERROR') AS errors
FROM spans
WHERE trace_id = $trace
