-- One row if the stale traces of `frontier` have more spans than DuckDB can skip to.
SELECT 1 FROM stale WHERE id IN (FROM frontier) HAVING sum(spans) > $most
