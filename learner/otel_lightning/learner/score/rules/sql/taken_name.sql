-- Judgements of this name that do not come from the rule itself.
SELECT min(source) AS source, count(*) AS n
FROM judgements
WHERE name = $reward AND NOT starts_with(coalesce(source, ''), $own)
