-- Number of model calls of these rollouts that asked for a temperature above 0.
SELECT count(*) AS calls FROM llm_calls
WHERE rollout_id IN $rollouts AND coalesce(TRY_CAST(request_params ->> '$.temperature' AS DOUBLE), 1) > 0
