SELECT
    (SELECT count(*) FROM spans) AS spans,
    (SELECT count(*) FROM llm_calls) AS calls,
    (SELECT count(*) FROM rollout_rows) AS rollouts,
    (SELECT count(*) FROM rollout_rows WHERE final_reward IS NOT NULL) AS rewarded,
    (SELECT count(*) FROM transition_rollouts) AS built,
    (SELECT count(*) FROM transition_rollouts WHERE excluded IS NULL) AS kept,
    (SELECT count(*) FROM transition_rows) AS transitions,
    (SELECT count(*) FROM transition_rows WHERE split = 'train') AS train,
    (SELECT count(*) FROM transition_rows WHERE split = 'heldout') AS heldout,
    (SELECT coalesce(sum(failed_calls), 0)::BIGINT FROM transition_rollouts) AS failed_calls,
    (SELECT coalesce(sum(context_calls), 0)::BIGINT FROM transition_rollouts) AS context_calls
