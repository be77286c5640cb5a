SELECT DISTINCT id FROM stale WHERE kind = 'trace' AND spans IS NULL AND id NOT IN $held LIMIT $most
