-- What arrived from the attempts: spans that name their rollout, and all spans.
SELECT
    count_if("lightning.rollout.id" IN $rollouts) AS named,
    count(*) AS spans
FROM spans
