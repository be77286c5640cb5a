-- Of long data, such as an image as base64, the first 400 characters are enough: text has spaces.
regexp_replace(input_messages::VARCHAR, '([A-Za-z0-9+/_-]{400})[A-Za-z0-9+/=_-]+', '\1…', 'g') AS input,
regexp_replace(output_messages::VARCHAR, '([A-Za-z0-9+/_-]{400})[A-Za-z0-9+/=_-]+', '\1…', 'g') AS output
