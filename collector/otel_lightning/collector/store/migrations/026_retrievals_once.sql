-- derive: again
-- The readers now keep a search once that LlamaIndex records twice, and read the prompt and the answer
-- of a completion model that OpenInference records. No table changes.
SELECT 1;
