-- Rewards of a rollout, response, span or trace that was never received.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM rewards) AS total,
    min(name || concat_ws(
        '', ' of rollout ' || rollout_id, ' of response ' || response_id, ' of span ' || span_id,
        ' of trace ' || trace_id
    )) AS example,
    NULL::VARCHAR AS kind
FROM rewards
WHERE rollout_id IS NULL OR rollout_id NOT IN (SELECT rollout_id FROM llm_calls WHERE rollout_id IS NOT NULL)
HAVING count(*) > 0
