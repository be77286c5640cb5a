-- When the key was written: with it the keys of a trace that was derived a short time ago are found
-- without reading those of all traces.
ALTER TABLE trace_keys ADD COLUMN added_at TIMESTAMP_NS;
