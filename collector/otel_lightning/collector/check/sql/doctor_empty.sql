-- Nothing was received: an exporter may use the port of the other protocol.
SELECT
    0 AS n,
    0 AS total,
    'an exporter of OTLP over HTTP that sends to the port for gRPC: it says "Expected HTTP/" or'
    || ' "BadStatusLine"' AS example,
    NULL::VARCHAR AS kind
WHERE NOT EXISTS (FROM spans) AND NOT EXISTS (FROM logs)
