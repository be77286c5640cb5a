-- A trace has no number of spans yet if some came after it was read: it stays stale.
DELETE FROM stale WHERE kind = 'trace' AND spans IS NOT NULL AND id IN (FROM chosen);
DROP TABLE chosen
