-- What a report adds to the page's `data_counts`: transitions by split, and calls that became none.
SELECT
    (SELECT count(*) FROM transition_rows WHERE split = 'train') AS train,
    (SELECT count(*) FROM transition_rows WHERE split = 'heldout') AS heldout,
    (SELECT coalesce(sum(failed_calls), 0)::BIGINT FROM transition_rollouts) AS failed_calls,
    (SELECT coalesce(sum(context_calls), 0)::BIGINT FROM transition_rollouts) AS context_calls
