-- The learner's tables of the made support desk: built transitions, runs, a policy, a curve.
INSERT INTO transition_rollouts
SELECT
    r.rollout_id, hash(coalesce(r.task_id, r.rollout_id)), r.llm_calls - r.errors, r.errors, 0,
    CASE WHEN r.final_reward IS NULL THEN 'no reward' END, 1
FROM rollouts r;

INSERT INTO transition_rows
SELECT
    c.rollout_id, c.step, c.trace_id, c.span_id, r.task_id,
    if(hash(r.task_id) % 3 = 0, 'heldout', 'train'),
    'support-prompt', a.arm, a.propensity, NULL, 'v1',
    if(lead(c.span_id) OVER (PARTITION BY c.rollout_id ORDER BY c.step) IS NULL, r.final_reward, 0),
    r.final_reward, r.final_reward - m.mean_reward,
    c.step = r.llm_calls - 1, FALSE,
    lead(c.span_id) OVER (PARTITION BY c.rollout_id ORDER BY c.step), hash(r.task_id)
FROM llm_calls c
JOIN rollouts r ON r.rollout_id = c.rollout_id
JOIN (SELECT rollout_id, min(arm) AS arm, min(propensity) AS propensity FROM arms GROUP BY rollout_id) a
    ON a.rollout_id = c.rollout_id
JOIN (SELECT task_id, avg(final_reward) AS mean_reward FROM rollouts GROUP BY task_id) m
    ON m.task_id = r.task_id
WHERE r.final_reward IS NOT NULL AND c.error_type IS NULL;

INSERT INTO runs (run_id, command, config, started, ended, metrics, gate, outcome, artifact) VALUES
(
    '20270115T090000Z-0001', 'transitions',
    '{"credit": "group", "gamma": 1.0, "held_out": 0.3, "baseline": "mean", "scale": "none", "length": "none"}',
    '2027-01-15 09:00:00', '2027-01-15 09:00:02', '{"rollouts": 60, "transitions": 170}', NULL, 'done',
    'transition_rows'
),
(
    '20270115T090100Z-0002', 'policy',
    '{"key": "support-prompt", "shuffle_rewards": null, "settings": {"estimator": "snips", "exploration": 0.1}}',
    '2027-01-15 09:01:00', '2027-01-15 09:01:01', '{"learned_from": 40}',
    '{"estimator": "snips", "rollouts": 20, "tasks": 7, "effective_sample_size": 18.2, "behavior_value": 0.396,
      "value": 0.431, "gain": 0.035, "lower": -0.008, "upper": 0.079, "least_gain": 0.0, "tasks_needed": 36,
      "refusals": ["the gain may be chance: with 95 % confidence it is at least -0.008, which is not above 0"],
      "reward_range": [0.0, 1.0], "mean_weight": 1.02, "passed": false}', 'refused', NULL
),
(
    '20270115T090200Z-0003', 'policy',
    '{"key": "support-prompt", "shuffle_rewards": 1, "settings": {"estimator": "snips", "exploration": 0.1}}',
    '2027-01-15 09:02:00', '2027-01-15 09:02:01', '{"learned_from": 40}',
    '{"estimator": "snips", "rollouts": 20, "tasks": 7, "effective_sample_size": 17.9, "behavior_value": 0.396,
      "value": 0.397, "gain": 0.001, "lower": -0.04, "upper": 0.041, "refusals": ["the gain may be chance"],
      "passed": false}', 'refused', NULL
),
(
    '20270115T090300Z-0004', 'policy',
    '{"key": "support-prompt", "shuffle_rewards": null, "settings": {"estimator": "snips", "exploration": 0.2}}',
    '2027-01-15 09:03:00', '2027-01-15 09:03:01', '{"learned_from": 120}',
    '{"estimator": "snips", "rollouts": 60, "tasks": 20, "effective_sample_size": 48.1, "behavior_value": 0.396,
      "value": 0.502, "gain": 0.106, "lower": 0.021, "upper": 0.19, "refusals": [], "passed": true}', 'promoted',
    'flags.json'
);

INSERT INTO policies (key, version, arms, run_id, created, status) VALUES
(
    'support-prompt', '20270115T090300Z-0004', '{"terse": 0.81, "friendly": 0.14, "verbose": 0.05}',
    '20270115T090300Z-0004', '2027-01-15 09:03:01', 'live'
);

INSERT INTO run_steps SELECT '20270115T090300Z-0004', range, 'loss', 1 / (1 + range / 20.0) FROM range(120);
INSERT INTO rejected VALUES ('2027-01-15 08:00:00', 'traces', 'span 3 has no trace_id', NULL);
