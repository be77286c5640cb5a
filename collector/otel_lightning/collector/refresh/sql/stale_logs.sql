SELECT DISTINCT id FROM stale WHERE kind = 'log' ORDER BY id LIMIT $most
