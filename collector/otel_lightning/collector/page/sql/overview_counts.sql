SELECT
    (SELECT count(*) FROM spans) AS spans,
    (SELECT count(*) FROM logs) AS logs,
    (SELECT count(*) FROM llm_calls) AS calls,
    (SELECT count(*) FROM rollout_rows) AS rollouts,
    (SELECT count(*) FROM transition_rows) AS transitions,
    (SELECT count(*) FROM rejected) AS rejected,
    (SELECT epoch_ns(max(start_time)) FROM llm_calls) AS newest_ns
