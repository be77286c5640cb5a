-- A sample that is the same each time; ranks make the correlation Spearman's.
WITH sample AS (
    SELECT rollout_id, start_time, final_reward, output_tokens
    FROM rollout_rows
    WHERE final_reward IS NOT NULL AND output_tokens IS NOT NULL
    ORDER BY hash(rollout_id)
    LIMIT $rows
),
ranked AS (
    SELECT
        *,
        rank() OVER (ORDER BY final_reward) + (count(*) OVER (PARTITION BY final_reward) - 1) / 2 AS reward_rank,
        rank() OVER (ORDER BY output_tokens) + (count(*) OVER (PARTITION BY output_tokens) - 1) / 2 AS length_rank
    FROM sample
)
SELECT
    rollout_id, epoch_ns(start_time) AS start_ns, final_reward AS reward, output_tokens::DOUBLE AS other,
    corr(reward_rank, length_rank) OVER () AS correlation, count(*) OVER () AS rollouts,
    abs(reward_rank - length_rank) / count(*) OVER () AS apart
FROM ranked
ORDER BY apart DESC, rollout_id
