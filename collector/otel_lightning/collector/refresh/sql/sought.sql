-- The keys of the traces of `frontier`, which `tied` has: their `own` ones, and the `key` that each of
-- them looks for.
CREATE OR REPLACE TEMP TABLE sought AS
-- A key is kept as 64 bits of its hash, which take less room than its text. All traces of a stated
-- rollout or conversation belong together, however many they are.
SELECT trace_id, own, CASE WHEN seeks IS NULL THEN own ELSE md5_number_lower(seeks) END AS key,
    starts_with(text, 'rollout:') OR starts_with(text, 'conversation:') AS ties_all
FROM (
    SELECT trace_id, md5_number_lower(key) AS own, if(seeks = key, NULL, seeks) AS seeks, seeks AS text
    FROM tied
);
