-- The traces that have one of the keys in `sought`; `KeyPlaces` knows which rows may have one.
INSERT INTO met FROM trace_keys WHERE $places AND key IN (SELECT key FROM sought)
