-- Without a time, as `rebuild` marks them: their lag is not measured.
INSERT INTO stale BY NAME
WITH recent AS MATERIALIZED (
    SELECT DISTINCT trace_id FROM spans
    -- The last row, not the newest time: a clock may have been ahead before.
    WHERE received_at >= (
        SELECT received_at FROM spans WHERE rowid = (SELECT max(rowid) FROM spans)
    ) - to_seconds($seconds)
), derived AS (
    -- Of whole tables, so only what is looked for is kept in memory.
    SELECT id AS trace_id FROM stale WHERE kind = 'trace' AND id IN (FROM recent)
    $and_derived
)
SELECT 'trace' AS kind, trace_id AS id FROM recent WHERE trace_id NOT IN (FROM derived)
RETURNING id
