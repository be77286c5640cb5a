INSERT INTO $table BY NAME SELECT $columns FROM $old WHERE $condition
