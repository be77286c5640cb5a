-- Find the calls that the rewards named in `to_place` judge: by response, else by span, else by trace.
UPDATE reward_events SET
    placed_rollout_id = found.rollout_id,
    placed_trace_id = coalesce(found.trace_id, placed_trace_id),
    placed_span_id = coalesce(found.span_id, placed_span_id)
FROM (
    WITH unplaced AS MATERIALIZED (
        -- A reward may judge another trace than that of its carrier.
        SELECT reward_id, response_id, coalesce(placed_trace_id, trace_id) AS trace_id,
            coalesce(placed_span_id, span_id) AS span_id
        FROM reward_events
        WHERE reward_id IN (SELECT reward_id FROM to_place)
    ),
    by_response AS (
        SELECT
            response_id,
            -- Some servers give every response the same id: the smallest does not depend on the
            -- order.
            min(rollout_id) AS rollout_id,
            min(span_id) AS span_id,
            min(trace_id) AS trace_id
        FROM llm_calls
        WHERE response_id IN (SELECT response_id FROM unplaced)
        GROUP BY response_id
    ),
    candidates AS (
        SELECT trace_id, span_id, merged_span_ids, rollout_id
        FROM llm_calls
        WHERE trace_id IN (SELECT trace_id FROM unplaced)
    ),
    by_span AS (
        SELECT trace_id, place AS span_id, min(rollout_id) AS rollout_id
        FROM (
            SELECT trace_id, unnest(list_append(merged_span_ids, span_id)) AS place, rollout_id
            FROM candidates
        )
        GROUP BY ALL
    ),
    by_trace AS (SELECT trace_id, min(rollout_id) AS rollout_id FROM candidates GROUP BY trace_id)
    SELECT
        e.reward_id, r.trace_id, r.span_id,
        coalesce(r.rollout_id, s.rollout_id, t.rollout_id) AS rollout_id
    FROM unplaced e
    LEFT JOIN by_response r ON r.response_id = e.response_id
    LEFT JOIN by_span s ON s.trace_id = e.trace_id AND s.span_id = e.span_id
    LEFT JOIN by_trace t ON t.trace_id = e.trace_id
) found
WHERE reward_events.reward_id = found.reward_id
