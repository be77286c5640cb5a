-- A rollout of $steps steps with 1.2 KB of text each, and a trace of $spans spans.
INSERT INTO llm_calls BY NAME
SELECT
    md5('long') AS trace_id, printf('%016x', range + 1) AS span_id, 'long' AS rollout_id, range::INTEGER AS step,
    'walker' AS agent_name, 'walker' AS service_name, 'model-7' AS request_model, 'full' AS content,
    make_timestamp_ns(1900000000000000000 + range * 1000000000) AS start_time,
    make_timestamp_ns(1900000000500000000 + range * 1000000000) AS end_time,
    '[{"role":"user","parts":[{"type":"text","content":"' || repeat(md5('in' || range), 20) || '"}]}]' AS input_messages,
    '[{"role":"assistant","parts":[{"type":"text","content":"' || repeat(md5('out' || range), 18) || '"}]}]' AS output_messages,
    'stop' AS finish_reason, 300 AS input_tokens, 200 AS output_tokens, md5('state' || range) AS state_hash
FROM range($steps);

INSERT INTO rollout_rows BY NAME
SELECT
    'long' AS rollout_id, md5('long') AS trace_id, 'walker' AS service_name, 'walker' AS agent_name,
    'model-7' AS model, min(start_time) AS start_time, max(end_time) AS end_time, count(*) AS llm_calls,
    0 AS tool_calls, 0 AS failed_calls, 0 AS failed_tools, sum(input_tokens)::BIGINT AS input_tokens,
    sum(output_tokens)::BIGINT AS output_tokens, 'stop' AS finish_reason, 'terminated' AS ended, 1.0 AS final_reward,
    'terminated' AS outcome
FROM llm_calls
WHERE rollout_id = 'long';

INSERT INTO transition_rows BY NAME
SELECT
    'long' AS rollout_id, step, trace_id, span_id, 'train' AS split, 0.0 AS reward, 1.0 AS return_to_go,
    sin(step / 40.0) AS advantage, FALSE AS terminated, FALSE AS truncated, 7 AS task_hash
FROM llm_calls
WHERE rollout_id = 'long';

INSERT INTO transition_rollouts (rollout_id, task_hash, usable_calls, fingerprint) VALUES ('long', 7, $steps, 1);

INSERT INTO spans BY NAME
SELECT
    'wide' AS trace_id, printf('%016x', range + 1) AS span_id,
    if(range = 0, NULL, printf('%016x', range // 7 + 1)) AS parent_span_id,
    'span ' || range AS name, 'INTERNAL' AS kind, 'walker' AS service_name, 'OK' AS status_code,
    make_timestamp_ns(1900000000000000000 + range * 1000000) AS start_time,
    make_timestamp_ns(1900000000000900000 + range * 1000000) AS end_time,
    make_timestamp_ns(1900000000000000000) AS received_at, '{}' AS resource_json, MAP {'n': range::VARCHAR} AS attributes
FROM range($spans);
