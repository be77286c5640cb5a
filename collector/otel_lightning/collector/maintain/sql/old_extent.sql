-- Last row id (-1 if there is none) and number of rows of a table of the store that is copied.
SELECT coalesce(max(rowid), -1) AS last, count(*) AS n FROM $old
