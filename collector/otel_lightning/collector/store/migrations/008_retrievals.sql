-- derive: again
-- What a retriever found, or a reranker put in order, and the model call that used it.
CREATE TABLE retrievals (
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    parent_span_id VARCHAR,
    rollout_id VARCHAR,
    llm_span_id VARCHAR,
    kind VARCHAR,
    name VARCHAR,
    query VARCHAR,
    documents JSON,
    scores DOUBLE[],
    error_type VARCHAR,
    start_time TIMESTAMP_NS,
    end_time TIMESTAMP_NS
);

ALTER TABLE llm_calls ADD COLUMN cache_creation_input_tokens BIGINT;
ALTER TABLE llm_calls ADD COLUMN cost DOUBLE;

-- Embeddings take no step and make no rollout.
CREATE OR REPLACE VIEW rollout_ends AS
WITH calls AS (
    SELECT
        rollout_id,
        min(service_name) AS service_name,
        min(start_time) AS start_time,
        max(end_time) AS end_time,
        count(step) AS llm_calls,
        count(error_type) AS errors,
        sum(input_tokens)::BIGINT AS input_tokens,
        sum(output_tokens)::BIGINT AS output_tokens,
        arg_max_null(finish_reason, step) AS last_finish_reason,
        arg_max(error_type IS NOT NULL, step) AS last_failed
    FROM llm_calls
    WHERE rollout_id IS NOT NULL
    GROUP BY rollout_id
),
roots AS (
    SELECT rollout_id, max(end_time) AS end_time FROM agent_runs WHERE parent_span_id IS NULL GROUP BY rollout_id
),
judged AS (
    SELECT
        r.rollout_id,
        arg_max(r.value, r."time") AS final_reward,
        max(r."time") FILTER (r.value IS NOT NULL) AS "time",
        count(r.value) > 0 AS is_judged,
        min(e.task_id) AS task_id
    FROM rewards r
    LEFT JOIN (SELECT reward_id, task_id FROM judgements WHERE task_id IS NOT NULL) e USING (reward_id)
    -- What a rule or a judge says later ends nothing.
    WHERE NOT coalesce(starts_with(r.source, 'rule:') OR starts_with(r.source, 'judge:'), FALSE)
    GROUP BY r.rollout_id
),
tasks AS (SELECT rollout_id, min(task_id) AS task_id FROM rollout_tasks GROUP BY rollout_id)
SELECT
    c.rollout_id,
    coalesce(t.task_id, j.task_id) AS task_id,
    c.service_name, c.start_time, c.end_time,
    c.llm_calls, c.errors, c.input_tokens, c.output_tokens,
    j.final_reward,
    CASE
        WHEN c.last_failed OR c.last_finish_reason IN ('length', 'content_filter', 'error') THEN 'truncated'
        WHEN j.is_judged AND coalesce(j."time" >= c.end_time, TRUE) THEN 'terminated'
        WHEN o.end_time >= c.end_time THEN 'terminated'
        WHEN c.last_finish_reason = 'stop' THEN 'terminated'
        ELSE 'open'
    END AS outcome
FROM calls c
LEFT JOIN judged j USING (rollout_id)
LEFT JOIN roots o USING (rollout_id)
LEFT JOIN tasks t USING (rollout_id);

-- Prices of the user's own, per million tokens; see `lightning-ingest prices`.
CREATE TABLE prices (
    model VARCHAR NOT NULL,
    provider VARCHAR,
    input DOUBLE NOT NULL,
    output DOUBLE,
    cached_input DOUBLE,
    cache_creation_input DOUBLE
);

-- What each call cost: by the prices where its model has one, else what the instrumentation says.
-- Cached tokens are among the input tokens. The longest model name that the call's begins with
-- counts, and one of the call's provider before one of any.
CREATE VIEW costs AS
WITH priced AS (
    SELECT c.trace_id, c.span_id, p.*
    FROM (
        SELECT trace_id, span_id, provider AS of_provider, coalesce(response_model, request_model) AS of_model
        FROM llm_calls
    ) c
    JOIN prices p
        ON starts_with(c.of_model, p.model) AND (p.provider IS NULL OR p.provider = c.of_provider)
    QUALIFY row_number() OVER (
        PARTITION BY c.trace_id, c.span_id ORDER BY length(p.model) DESC, p.provider NULLS LAST
    ) = 1
)
SELECT
    c.rollout_id, c.step, c.trace_id, c.span_id, coalesce(c.response_model, c.request_model) AS model,
    coalesce(
        (
            (
                c.input_tokens - coalesce(c.cached_input_tokens, 0)
                - coalesce(c.cache_creation_input_tokens, 0)
            ) * p.input
            + coalesce(c.cached_input_tokens, 0) * coalesce(p.cached_input, p.input)
            + coalesce(c.cache_creation_input_tokens, 0) * coalesce(p.cache_creation_input, p.input)
            + coalesce(c.output_tokens, 0) * coalesce(p.output, 0)
        ) / 1e6,
        c.cost
    ) AS cost
FROM llm_calls c
LEFT JOIN priced p USING (trace_id, span_id);
