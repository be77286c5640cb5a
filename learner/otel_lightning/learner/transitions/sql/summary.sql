-- Each rollout has exactly one row that is terminated or truncated; counting these rows counts
-- rollouts.
WITH earned AS (
    SELECT
        count(*) AS transitions,
        coalesce(count_if(terminated OR truncated), 0)::BIGINT AS rollouts,
        coalesce(count_if((terminated OR truncated) AND split = 'train'), 0)::BIGINT AS train,
        coalesce(sum(reward), 0) AS reward,
        min(advantage) AS least_advantage,
        max(advantage) AS greatest_advantage
    FROM transition_rows
),
tasks AS (
    SELECT count(*) AS rollouts FROM transition_rollouts WHERE excluded IS NULL GROUP BY task_hash
)
SELECT
    (SELECT count(*) FROM transition_rollouts) AS rollouts,
    e.rollouts AS rewarded,
    e.transitions,
    (SELECT count(*) FROM tasks) AS tasks,
    e.train,
    e.rollouts - e.train AS heldout,
    e.reward / nullif(e.rollouts, 0) AS mean_reward,
    e.least_advantage,
    e.greatest_advantage,
    (SELECT coalesce(sum(failed_calls), 0)::BIGINT FROM transition_rollouts) AS failed_calls,
    (SELECT coalesce(sum(context_calls), 0)::BIGINT FROM transition_rollouts) AS context_calls,
    (SELECT count(*) FROM tasks WHERE rollouts = 1) AS alone
FROM earned e
