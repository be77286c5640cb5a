-- Prompts that a model proposed: one row per proposal. A row without `variant` was refused.
CREATE TABLE prompts (
    run_id VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    call INTEGER NOT NULL,
    variant VARCHAR,
    parent VARCHAR NOT NULL,
    component VARCHAR,
    text_hash VARCHAR,
    text VARCHAR,
    reason VARCHAR,
    records VARCHAR[],
    refused VARCHAR,
    created TIMESTAMP_NS NOT NULL
);
