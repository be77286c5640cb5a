-- Where a policy comes from, and every change of a flag file.
ALTER TABLE policies ADD COLUMN parent VARCHAR;
ALTER TABLE policies ADD COLUMN data_fingerprint VARCHAR;

CREATE TABLE promotions (
    key VARCHAR NOT NULL,
    version VARCHAR,
    served_version VARCHAR,
    action VARCHAR NOT NULL,
    share DOUBLE,
    arms JSON,
    flags VARCHAR NOT NULL,
    before JSON,
    after JSON,
    "time" TIMESTAMP_NS NOT NULL
);
