-- A trace has no number of spans yet if some came after it was read: it stays stale.
DELETE FROM stale WHERE kind = 'trace' AND spans IS NOT NULL AND id IN (FROM changed);
DROP TABLE changed; DROP TABLE IF EXISTS frontier; DROP TABLE IF EXISTS tied;
DROP TABLE IF EXISTS sought; DROP TABLE IF EXISTS met; DROP TABLE IF EXISTS read_again
