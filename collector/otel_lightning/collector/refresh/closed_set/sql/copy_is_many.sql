-- One row if the stale traces of `chosen` have more spans than DuckDB can skip to.
SELECT 1 FROM stale WHERE id IN (FROM chosen) HAVING sum(spans) > $most
