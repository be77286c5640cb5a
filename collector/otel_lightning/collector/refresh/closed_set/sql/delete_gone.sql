-- Delete the rows of a trace whose keys are in `gone`. A key may have unknown parts.
DELETE FROM $table USING gone WHERE $since AND trace_id = $trace AND $same;
DROP TABLE gone
