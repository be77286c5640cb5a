SELECT trace_id FROM frontier WHERE trace_id NOT IN (SELECT id FROM stale WHERE kind = 'trace')
