INSERT INTO $table BY NAME
SELECT $columns FROM $old WHERE rowid >= $first AND rowid < $last ORDER BY rowid
