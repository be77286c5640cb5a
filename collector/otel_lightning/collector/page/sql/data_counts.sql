-- From spans to transitions. The report of `lightning-learn report` runs this statement too.
SELECT
    (SELECT count(*) FROM spans) AS spans,
    (SELECT count(*) FROM logs) AS logs,
    (SELECT count(*) FROM llm_calls) AS calls,
    (SELECT count(*) FROM rollout_rows) AS rollouts,
    (SELECT count(*) FROM rollout_rows WHERE final_reward IS NOT NULL) AS received_reward,
    -- A reward that a rule or a judge gave is known by the transitions that it made.
    (
        SELECT count(*)
        FROM rollout_rows r
        WHERE r.final_reward IS NULL
            AND r.rollout_id NOT IN (SELECT t.rollout_id FROM transition_rollouts t WHERE t.excluded IS NULL)
    ) AS without_any_reward,
    (SELECT count(*) FROM transition_rollouts) AS looked_at,
    (SELECT count(*) FROM transition_rollouts WHERE excluded IS NULL) AS kept,
    (SELECT count(*) FROM transition_rows) AS transitions
