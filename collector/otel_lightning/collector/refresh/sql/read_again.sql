-- The stale traces among those of `frontier`.
CREATE OR REPLACE TEMP TABLE read_again AS
SELECT DISTINCT id AS trace_id FROM stale WHERE kind = 'trace' AND id IN (FROM frontier)
