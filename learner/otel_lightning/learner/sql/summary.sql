WITH earned AS (
    SELECT rollout_id, any_value(split) AS split, sum(reward) AS reward, count(*) AS transitions
    FROM transition_rows
    GROUP BY rollout_id
),
tasks AS (
    SELECT count(*) AS rollouts FROM transition_rollouts WHERE excluded IS NULL GROUP BY task_hash
)
SELECT
    (SELECT count(*) FROM transition_rollouts) AS rollouts,
    (SELECT count(*) FROM earned) AS rewarded,
    (SELECT coalesce(sum(transitions), 0)::BIGINT FROM earned) AS transitions,
    (SELECT count(*) FROM earned WHERE split = 'train') AS train,
    (SELECT count(*) FROM earned WHERE split = 'heldout') AS heldout,
    (SELECT avg(reward) FROM earned) AS mean_reward,
    (SELECT coalesce(sum(failed_calls), 0)::BIGINT FROM transition_rollouts) AS failed_calls,
    (SELECT coalesce(sum(context_calls), 0)::BIGINT FROM transition_rollouts) AS context_calls,
    (SELECT count(*) FROM tasks WHERE rollouts = 1) AS alone
