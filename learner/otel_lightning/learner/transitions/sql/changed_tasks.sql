-- Tasks with a rollout that was added, removed or changed since the last build.
CREATE OR REPLACE TEMP TABLE changed_tasks AS
WITH now AS (
    SELECT task_hash, sum(hash(fingerprint)) AS fingerprint, count(*) AS rollouts
    FROM staged_rollouts
    GROUP BY task_hash
),
before AS (
    SELECT task_hash, sum(hash(fingerprint)) AS fingerprint, count(*) AS rollouts
    FROM transition_rollouts
    GROUP BY task_hash
)
SELECT task_hash
FROM now FULL JOIN before USING (task_hash)
WHERE $rebuild
    OR now.fingerprint IS DISTINCT FROM before.fingerprint
    OR now.rollouts IS DISTINCT FROM before.rollouts
