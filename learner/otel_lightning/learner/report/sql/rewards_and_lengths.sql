-- The outcome of each rollout with transitions, its length, and what each judge gave it. The outcome is
-- the sum of the rewards: a return is discounted, and so it would fall with the length by itself.
WITH outcomes AS (
    SELECT rollout_id, task_hash, sum(reward ORDER BY step) AS outcome
    FROM transition_rows
    GROUP BY rollout_id, task_hash
),
judged AS (
    SELECT rollout_id, source, avg(value) AS score
    FROM rewards
    WHERE starts_with(source, 'judge:') AND value IS NOT NULL AND span_id IS NULL
    GROUP BY rollout_id, source
)
SELECT o.rollout_id, o.task_hash, o.outcome, r.output_tokens, j.source, j.score
FROM outcomes o
JOIN rollout_rows r USING (rollout_id)
LEFT JOIN judged j USING (rollout_id)
WHERE o.outcome IS NOT NULL
ORDER BY o.rollout_id, j.source
