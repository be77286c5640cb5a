-- Rollouts that did best and worst beside the other rollouts of their task. The outcome is the sum of
-- the rewards, because a return would be discounted by the length of the rollout.
WITH outcomes AS (
    SELECT rollout_id, task_hash, sum(reward ORDER BY step) AS outcome
    FROM transition_rows
    GROUP BY rollout_id, task_hash
),
compared AS (
    SELECT *, outcome - avg(outcome) OVER (PARTITION BY task_hash) AS difference
    FROM outcomes
    WHERE outcome IS NOT NULL
)
SELECT rollout_id, outcome, difference
FROM compared
WHERE $side
ORDER BY abs(difference) DESC, rollout_id
LIMIT $most
