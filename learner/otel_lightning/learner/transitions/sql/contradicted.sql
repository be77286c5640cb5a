-- Rollouts with contradictory rewards: the latest judgements of one name and step have the same
-- time but different values.
CREATE OR REPLACE TEMP TABLE contradicted AS
WITH repeated AS (
    SELECT rollout_id, name, step, max("time") AS last_time
    FROM staged_rewards
    WHERE NOT emitted
    GROUP BY ALL
    HAVING count(*) > 1
)
SELECT DISTINCT w.rollout_id
FROM repeated p
JOIN staged_rewards w
    ON w.rollout_id = p.rollout_id AND w.name = p.name AND w.step IS NOT DISTINCT FROM p.step
WHERE NOT w.emitted AND w."time" IS NOT DISTINCT FROM p.last_time
GROUP BY w.rollout_id, w.name, w.step
HAVING min(w.value) <> max(w.value)
