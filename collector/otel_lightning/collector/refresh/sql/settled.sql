-- The traces of `frontier` without new spans.
SELECT trace_id FROM frontier WHERE trace_id NOT IN (SELECT id FROM stale WHERE kind = 'trace')
