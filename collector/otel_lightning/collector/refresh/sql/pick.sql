-- `frontier`: the traces to read next. `changed`: all traces of the closed set that were read so far.
-- A rollout is derived as a whole. So the rows that it has already add to its weight, and its other
-- stale traces are picked with the first one.
CREATE OR REPLACE TEMP TABLE changed (trace_id VARCHAR);
CREATE OR REPLACE TEMP TABLE frontier AS
WITH first AS (
    FROM stale WHERE kind = 'trace' AND id NOT IN $held AND coalesce(near, id) NOT IN $held
    -- Each trace has a span at least, so no more traces than spans are needed.
    ORDER BY first_time, near NULLS LAST, id LIMIT $most
), derived AS (
    SELECT rollout_id AS near, 2 * sum(llm_calls) AS spans FROM rollout_rows
    WHERE rollout_id IN (SELECT near FROM first) GROUP BY rollout_id
), weighed AS (
    SELECT first.*, first.spans
        -- Once for each rollout, with the smallest id of its traces.
        + if(id = min(id) OVER (PARTITION BY near), coalesce(derived.spans, 0), 0) AS weight
    FROM first LEFT JOIN derived USING (near)
), summed AS (
    SELECT id, near,
        sum(weight) OVER (ORDER BY first_time, near NULLS LAST, id) - weight AS before
    FROM weighed
)
SELECT id AS trace_id FROM (
    SELECT id, min(before) OVER (PARTITION BY coalesce(near, id)) AS before FROM summed
) WHERE before < $most
