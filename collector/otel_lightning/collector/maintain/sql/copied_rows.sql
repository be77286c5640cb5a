INSERT INTO $table BY NAME
SELECT $columns FROM old.$table WHERE rowid >= $first AND rowid < $last ORDER BY rowid
