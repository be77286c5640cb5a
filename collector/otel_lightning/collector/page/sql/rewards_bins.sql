WITH ranges AS (
    SELECT name, source, min(value) AS least, greatest(max(value) - min(value), 1e-12) AS width
    FROM judgements
    WHERE value IS NOT NULL
    GROUP BY name, source
)
SELECT
    j.name, j.source, least(floor((j.value - r.least) / r.width * 20), 19)::INTEGER AS bin, count(*) AS judgements
FROM judgements j
JOIN ranges r ON r.name = j.name AND r.source IS NOT DISTINCT FROM j.source
WHERE j.value IS NOT NULL
GROUP BY ALL
ORDER BY ALL
