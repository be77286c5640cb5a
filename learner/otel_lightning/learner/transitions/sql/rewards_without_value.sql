-- Chosen rewards of rollouts that have no number: how many, and the name of one.
SELECT count(*) AS n, min(name) AS name
FROM rewards
WHERE rollout_id IS NOT NULL AND value IS NULL AND $chosen
