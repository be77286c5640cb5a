-- Names of the rewards from which something can be learned.
SELECT DISTINCT name
FROM rewards
WHERE rollout_id IS NOT NULL AND value IS NOT NULL
ORDER BY name
