-- Traces that are stale, or of which something was received since the check began.
SELECT id FROM stale WHERE kind = 'trace'
UNION SELECT trace_id FROM spans WHERE received_at > $since
UNION SELECT trace_id FROM logs WHERE trace_id IS NOT NULL AND received_at > $since
