-- The traces to derive next.
-- A rollout is derived as a whole. So the rows that it has already add to its weight, and its other
-- stale traces are picked with the first one.
CREATE OR REPLACE TEMP TABLE chosen AS
WITH first AS (
    FROM stale WHERE kind = 'trace' AND id NOT IN $held AND coalesce(near, id) NOT IN $held
    -- Each trace has a span at least, so no more traces than spans are needed.
    ORDER BY first_time, near NULLS LAST, id LIMIT $most
), derived AS (
    SELECT rollout_id AS near, 2 * sum(llm_calls) AS spans FROM rollout_rows
    WHERE rollout_id IN (SELECT near FROM first) GROUP BY rollout_id
), together AS (
    SELECT list(id) AS ids, min(first_time) AS first_time, min(near) AS near, min(id) AS id,
        sum(first.spans) + coalesce(any_value(derived.spans), 0) AS weight
    FROM first LEFT JOIN derived USING (near) GROUP BY coalesce(near, id)
), summed AS (
    SELECT ids, sum(weight) OVER (ORDER BY first_time, near NULLS LAST, id) - weight AS before
    FROM together
)
SELECT unnest(ids) AS trace_id FROM summed WHERE before < $most
