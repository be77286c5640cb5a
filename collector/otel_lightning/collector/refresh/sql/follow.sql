-- Replace `frontier` by the traces that share a key with its traces, which `met` has. Some servers
-- give every response the same id, so a key that more than $crowd traces share ties none of them.
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT DISTINCT trace_id FROM met
WHERE trace_id NOT IN (FROM changed) AND (
    key IN (SELECT key FROM sought WHERE ties_all)
    OR key IN (SELECT key FROM met GROUP BY key HAVING count(*) <= $crowd)
)
