DELETE FROM stale WHERE kind = 'trace' AND id IN (FROM changed);
DROP TABLE changed; DROP TABLE frontier; DROP TABLE tied; DROP TABLE sought; DROP TABLE met
