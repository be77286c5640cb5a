-- Traces that likely belong together get one time: that of the first of them. So they are derived in
-- one batch, and their spans are close to each other in the file.
CREATE TEMP TABLE sized AS
-- DISTINCT, because `stale` has a row for each batch that brought spans of a trace.
SELECT DISTINCT stale.id, known.near, coalesce(known.spans, 1) AS spans,
    min(known.first_time) OVER (PARTITION BY coalesce(known.near, stale.id)) AS first_time,
    min(stale.received_at) OVER (PARTITION BY stale.id) AS received_at
FROM stale LEFT JOIN (
    SELECT trace_id, count(*) AS spans, min(start_time) AS first_time,
        max(coalesce("lightning.rollout.id", "gen_ai.conversation.id", "session.id")) AS near
    FROM spans
    WHERE $received AND trace_id IN (SELECT id FROM stale WHERE kind = 'trace' AND stale.spans IS NULL)
        AND trace_id NOT IN $held
    GROUP BY trace_id
) known ON known.trace_id = stale.id
WHERE kind = 'trace' AND stale.spans IS NULL AND stale.id NOT IN $held;
DELETE FROM stale WHERE kind = 'trace' AND id IN (SELECT id FROM sized);
INSERT INTO stale BY NAME SELECT 'trace' AS kind, * FROM sized;
DROP TABLE sized
