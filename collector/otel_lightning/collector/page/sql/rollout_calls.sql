-- What is new in each step: if the messages of the agent's step before are the beginning of this
-- step's messages, only the rest. Longer texts are left out; the step's own page has them.
WITH calls AS (
    SELECT
        *,
        lag(input_messages::VARCHAR) OVER before AS former,
        lag(step) OVER before AS former_step
    FROM llm_calls
    WHERE
        rollout_id = $rollout
        AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
        AND step BETWEEN $first - 3 AND $last
    WINDOW before AS (PARTITION BY agent_name ORDER BY step)
),
grown AS (
    SELECT
        *,
        coalesce(
            strlen(former) > 2
            AND starts_with(input_messages::VARCHAR, left(former, length(former) - 1)), FALSE
        ) AS grew
    FROM calls
    WHERE step >= $first
),
new_in_step AS (
    SELECT
        * REPLACE (
            if(grew, '[' || ltrim(substr(input_messages::VARCHAR, length(former)), ', '), input_messages::VARCHAR)
                AS input_messages
        ),
        json_array_length(input_messages) AS messages
    FROM grown
),
shortened AS (
    SELECT
        *,
        -- part: short_messages
    FROM new_in_step
)
SELECT
    step, trace_id, span_id, agent_name, epoch_ns(start_time) AS start_ns, epoch_ns(end_time) AS end_ns,
    coalesce(response_model, request_model) AS model, finish_reason, error_type, error_message,
    input_tokens, output_tokens, content, state_hash, grew,
    if(grew, former_step, NULL) AS former_step,
    if(grew, json_array_length(former::JSON), 0) AS earlier,
    if(length(input) < $most_text, input, NULL) AS new_messages,
    messages,
    if(length(output) < $most_text, output, NULL) AS answer,
    length(output_messages::VARCHAR) AS answer_length,
    list_avg(completion_logprobs) AS mean_logprob,
    list_min(completion_logprobs) AS least_logprob,
    len(completion_logprobs) AS tokens_scored,
    completion_logprobs[1:120] AS logprobs
FROM shortened
ORDER BY step
