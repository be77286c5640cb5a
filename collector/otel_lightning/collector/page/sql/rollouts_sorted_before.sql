-- By reward, length or errors; rows with the same value are in the order of their ids.
-- part: rollouts_keyed
SELECT
    -- part: rollout_columns
    sort_key
FROM keyed
WHERE
    sort_key IS NOT NULL
    AND (sort_key < $after_key OR (sort_key = $after_key AND rollout_id < $after_id)) -- if: after_key
    -- part: rollouts_filter
ORDER BY sort_key DESC, rollout_id DESC
LIMIT $rows
