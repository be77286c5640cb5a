-- derive: again
-- The readers now read Langtrace and Agno's results, Laminar's failed calls, Traceloop's Responses of
-- 2025, and the texts that OpenInference's history of the OpenAI Agents SDK in JavaScript lacks. A
-- tool's result that Bedrock's instrumentation writes twice is kept once. No table changes.
SELECT 1;
