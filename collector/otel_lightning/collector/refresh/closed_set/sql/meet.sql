-- The traces that have one of these keys; `KeyPlaces` knows which rows may have one.
SELECT trace_id, key FROM trace_keys WHERE $places AND key IN (FROM {rows})
