-- Rollouts that could be used but for their reward, and all that could be used.
SELECT
    count(*) FILTER (excluded = 'without a reward') AS unrewarded,
    count(*) FILTER (excluded IS NULL OR excluded = 'without a reward') AS rollouts
FROM transition_rollouts
