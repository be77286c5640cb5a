-- The first staged reward that counts and is not a finite number, or is too large to compute with, if
-- there is one. A judgement that a later one of the same thing replaced does not count.
WITH broken AS (FROM staged_rewards WHERE NOT isfinite(value) OR abs(value) > $huge)
FROM broken b
WHERE b.emitted OR NOT EXISTS (
    FROM staged_rewards l
    WHERE l.rollout_id = b.rollout_id AND l.name = b.name AND l.step IS NOT DISTINCT FROM b.step
        AND NOT l.emitted AND l."time" > b."time"
)
ORDER BY rollout_id
LIMIT 1
