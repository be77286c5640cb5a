-- What was received last before the cutoff: traces, except for those of `spared`, and log records
-- without a trace.
CREATE TEMP TABLE expired AS
SELECT trace_id FROM (
    SELECT trace_id, received_at FROM spans UNION ALL
    SELECT trace_id, received_at FROM logs WHERE trace_id IS NOT NULL
) GROUP BY trace_id HAVING max(received_at) < make_timestamp_ns($cutoff)
    AND trace_id NOT IN (FROM spared);
CREATE TEMP TABLE expired_logs AS
SELECT log_id FROM logs WHERE trace_id IS NULL AND received_at < make_timestamp_ns($cutoff);
CREATE TEMP TABLE expired_before AS SELECT make_timestamp_ns($cutoff) AS received_at
