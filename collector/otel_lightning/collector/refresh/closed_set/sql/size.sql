-- Traces that likely belong together get one time: that of the first of them. So they are derived in
-- one batch, and their spans are close to each other in the file.
CREATE TEMP TABLE sized AS
WITH waiting AS (
    -- `stale` has a row for each batch that brought spans of a trace.
    SELECT id, min(received_at) AS received_at
    FROM stale
    WHERE kind = 'trace' AND spans IS NULL AND id NOT IN $held
    GROUP BY id
), known AS (
    SELECT trace_id AS id, count(*) AS spans, min(start_time) AS first_time,
        max(coalesce(
            nullif("lightning.rollout.id", ''), nullif("gen_ai.conversation.id", ''),
            nullif("session.id", '')
        )) AS near
    FROM spans
    WHERE $received AND trace_id IN (SELECT id FROM waiting)
    GROUP BY trace_id
), counted AS (
    SELECT waiting.id, known.near, coalesce(known.spans, 1) AS spans, known.first_time,
        waiting.received_at, coalesce(known.near, waiting.id) AS together
    FROM waiting LEFT JOIN known USING (id)
-- Grouping and joining cost half as much as windows, which sort the rows.
), begun AS (SELECT together, min(first_time) AS first_time FROM counted GROUP BY together)
SELECT id, near, spans, begun.first_time, received_at FROM counted JOIN begun USING (together);
DELETE FROM stale WHERE kind = 'trace' AND id IN (SELECT id FROM sized);
INSERT INTO stale BY NAME SELECT 'trace' AS kind, * FROM sized;
DROP TABLE sized
