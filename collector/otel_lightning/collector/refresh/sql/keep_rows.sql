DELETE FROM changed WHERE trace_id IN (FROM recalled);
DROP TABLE recalled
