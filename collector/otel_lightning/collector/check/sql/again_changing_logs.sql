-- Log records without a trace that are stale, or were received since the check began.
SELECT id FROM stale WHERE kind = 'log'
UNION SELECT log_id FROM logs WHERE trace_id IS NULL AND received_at > $since
