-- Every change of a pointer to the live model: a row is one promotion or rollback. A pointer is a
-- symbolic link, such as `models/live`, which leads to the folder of a model.

CREATE TABLE model_promotions (
    live VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    run_id VARCHAR,
    gate VARCHAR,
    before VARCHAR,
    after VARCHAR NOT NULL,
    "time" TIMESTAMP_NS NOT NULL
);
