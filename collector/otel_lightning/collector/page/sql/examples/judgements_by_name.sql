SELECT name, source, count(*) AS judgements, avg(value) AS mean
FROM judgements GROUP BY ALL ORDER BY judgements DESC
