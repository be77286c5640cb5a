-- Output tokens of the rollouts with a choice for some flags, and the score of each judge.
WITH judged AS (
    SELECT rollout_id, source, avg(value) AS score
    FROM rewards
    WHERE starts_with(source, 'judge:') AND value IS NOT NULL AND span_id IS NULL
    GROUP BY rollout_id, source
)
SELECT r.rollout_id, r.output_tokens, j.source, j.score
FROM rollout_rows r
LEFT JOIN judged j USING (rollout_id)
WHERE r.rollout_id IN (SELECT rollout_id FROM arms WHERE key IN $keys)
ORDER BY r.rollout_id, j.source
