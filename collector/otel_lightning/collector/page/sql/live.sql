SELECT
    (SELECT count(*) FROM spans) AS spans,
    (SELECT count(*) FROM llm_calls WHERE step = 0) AS rollouts
