-- The time up to which this share of the spans was received.
SELECT epoch_ns(quantile_disc(received_at, $share)) AS cutoff FROM spans
