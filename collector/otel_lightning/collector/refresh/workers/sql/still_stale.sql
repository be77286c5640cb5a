-- Of these rollouts and traces, those that are stale.
SELECT name FROM $names
WHERE name IN (SELECT id FROM stale UNION ALL SELECT near FROM stale WHERE near IS NOT NULL)
