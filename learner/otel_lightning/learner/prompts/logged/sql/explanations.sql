-- What judges, rules and senders said about rollouts: the last judgement of each name. The spread of
-- a judge's samples is a fact about the judge, and so is the error in place of its score.
SELECT rollout_id, name, value, label, explanation
FROM rewards
WHERE rollout_id IS NOT NULL AND NOT ends_with(name, '.spread')
    AND (explanation IS NOT NULL OR value IS NOT NULL)
    AND NOT coalesce(starts_with(source, 'judge:') AND label = 'error', FALSE)
QUALIFY row_number() OVER (PARTITION BY rollout_id, name ORDER BY "time" DESC, reward_id DESC) = 1
ORDER BY rollout_id, name
