-- The first choice of each rollout for each of several flags, as one choice of a combination. Its
-- propensity is the product, which is right if the flags were drawn independently.
CREATE OR REPLACE TEMP TABLE first_choices AS
WITH smallest AS (
    SELECT
        rollout_id, key,
        min({
            'untimed': "time" IS NULL, 'time': "time", 'arm': arm, 'propensity': propensity,
            'policy_version': policy_version
        }) AS choice,
        min(arm) <> max(arm) AS switched
    FROM logged_choices
    GROUP BY rollout_id, key
)
SELECT
    rollout_id,
    string_agg(choice.arm, '+' ORDER BY list_position($order, key)) AS arm,
    if(count(choice.propensity) = count(*), product(choice.propensity), NULL) AS propensity,
    if(
        count(choice.policy_version) = count(*) AND count(DISTINCT choice.policy_version) = 1,
        min(choice.policy_version), NULL
    ) AS policy_version,
    max(choice."time") AS "time",
    bool_or(switched) AS switched
FROM smallest
GROUP BY rollout_id
HAVING count(*) = len($order);

CREATE OR REPLACE TEMP VIEW policy_choices AS FROM first_choices
