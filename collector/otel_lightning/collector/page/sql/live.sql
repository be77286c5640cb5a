SELECT
    (SELECT count(*) FROM spans) AS spans,
    (SELECT count(*) FROM rollout_rows) AS rollouts
