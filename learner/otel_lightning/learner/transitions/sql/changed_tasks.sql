-- Tasks of which a rollout came, went or changed since their transitions were built.
-- Hashed once more: `hash` only xors its last argument in, so what changes alike in two rows would cancel.
CREATE OR REPLACE TEMP TABLE changed_tasks AS
WITH now AS (
    SELECT task_hash, bit_xor(hash(fingerprint)) AS fingerprint, count(*) AS rollouts
    FROM staged_rollouts
    GROUP BY task_hash
),
before AS (
    SELECT task_hash, bit_xor(hash(fingerprint)) AS fingerprint, count(*) AS rollouts
    FROM transition_rollouts
    GROUP BY task_hash
)
SELECT task_hash
FROM now FULL JOIN before USING (task_hash)
WHERE $rebuild
    OR now.fingerprint IS DISTINCT FROM before.fingerprint
    OR now.rollouts IS DISTINCT FROM before.rollouts
