"""From the spool into the tables `spans` and `logs`: decoding, duplicates, limits, retention."""
