-- `tied` has the keys of the traces of `frontier`: write those of the stale ones to `trace_keys`, and
-- replace `frontier` by the traces that share a key with them. Some servers give every response the
-- same id, so a key that more than $crowd traces share ties none of them.
CREATE OR REPLACE TEMP TABLE sought AS
-- A key is kept as 64 bits of its hash, which take less room than its text. All traces of a stated
-- rollout or conversation belong together, however many they are.
SELECT trace_id, own, CASE WHEN seeks IS NULL THEN own ELSE md5_number_lower(seeks) END AS key,
    starts_with(text, 'rollout:') OR starts_with(text, 'conversation:') AS ties_all
FROM (
    SELECT trace_id, md5_number_lower(key) AS own, if(seeks = key, NULL, seeks) AS seeks, seeks AS text
    FROM tied
);
-- Only stale traces may have new keys; the keys of the others are in the table already.
DELETE FROM trace_keys WHERE trace_id IN (
    SELECT id FROM stale WHERE kind = 'trace' AND id IN (FROM frontier)
);
INSERT INTO trace_keys SELECT DISTINCT trace_id, own FROM sought
WHERE trace_id IN (SELECT id FROM stale WHERE kind = 'trace' AND id IN (FROM frontier))
ORDER BY ALL;
CREATE OR REPLACE TEMP TABLE met AS
FROM trace_keys WHERE key IN (SELECT key FROM sought);
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT DISTINCT trace_id FROM met
WHERE trace_id NOT IN (FROM changed) AND (
    key IN (SELECT key FROM sought WHERE ties_all)
    OR key IN (SELECT key FROM met GROUP BY key HAVING count(*) <= $crowd)
)
