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

-- Stages of `lightning-learn loop`: a row is written when a stage ends, so a loop that was killed
-- goes on with the first stage that has none.
CREATE TABLE rounds (
    loop VARCHAR NOT NULL,
    round INTEGER NOT NULL,
    stage VARCHAR NOT NULL,
    outcome VARCHAR NOT NULL,
    details JSON,
    started TIMESTAMP_NS NOT NULL,
    ended TIMESTAMP_NS NOT NULL
);
