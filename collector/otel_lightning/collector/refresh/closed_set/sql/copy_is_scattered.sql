-- One row if reading the traces of `chosen` unpacks many more rows than it needs.
SELECT 1 FROM spans WHERE trace_id IN (FROM chosen)
-- A block more than needed is allowed, so that a few rows in one block do not count as scattered.
HAVING $block * count(DISTINCT rowid // $block) > $scattered * (count(*) + $block)
