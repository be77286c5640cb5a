-- Count the traces of `recalled` as read.
INSERT INTO changed FROM recalled;
DELETE FROM frontier WHERE trace_id IN (FROM recalled);
DROP TABLE recalled
