-- `tied` has the keys of the traces of `frontier`: write those of the stale ones to `trace_keys`, and
-- replace `frontier` by the traces that share a key with them. Some servers give every response the
-- same id, so a key that more than $crowd traces share ties none of them.
DELETE FROM trace_keys WHERE trace_id IN (
    SELECT id FROM stale WHERE kind = 'trace' AND id IN (FROM frontier)
);
INSERT INTO trace_keys SELECT DISTINCT trace_id, md5_number_lower(key) FROM tied
WHERE trace_id IN (SELECT id FROM stale WHERE kind = 'trace' AND id IN (FROM frontier))
ORDER BY ALL;
CREATE OR REPLACE TEMP TABLE sought AS
SELECT trace_id, md5_number_lower(seeks) AS key,
    regexp_matches(seeks, '^(rollout|conversation):') AS ties_all
FROM tied;
CREATE OR REPLACE TEMP TABLE met AS
FROM trace_keys WHERE key IN (SELECT key FROM sought);
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT DISTINCT trace_id FROM met
WHERE trace_id NOT IN (FROM changed) AND (
    key IN (SELECT key FROM sought WHERE ties_all)
    OR key IN (SELECT key FROM met GROUP BY key HAVING count(*) <= $crowd)
)
