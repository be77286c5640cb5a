SELECT
    name, source, count(*) AS judgements, count(value) AS numbers, count(label) AS labels,
    avg(value) AS mean, min(value) AS least, max(value) AS most, epoch_ns(max("time")) AS last_ns
FROM judgements
GROUP BY name, source
ORDER BY judgements DESC, name, source
LIMIT 40
