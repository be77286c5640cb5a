-- What credit compares the calls of a task with. A place counts the calls of a rollout that became
-- transitions; a rollout that has ended by then counts with its last return.
WITH own_task AS (SELECT task_hash FROM transition_rollouts WHERE rollout_id = $rollout LIMIT 1),
calls AS (
    SELECT
        *,
        row_number() OVER of_rollout - 1 AS place,
        count(*) OVER (PARTITION BY rollout_id) AS calls,
        lead(advantage) OVER of_rollout AS next_advantage
    FROM transition_rows
    WHERE task_hash = (SELECT task_hash FROM own_task)
    WINDOW of_rollout AS (PARTITION BY rollout_id ORDER BY step)
),
own AS (SELECT * FROM calls WHERE rollout_id = $rollout AND step = $step),
returns AS (
    SELECT
        c.rollout_id,
        sum(c.reward) AS total,
        max(c.return_to_go) FILTER (c.place = least(o.place, c.calls - 1)) AS here,
        max(c.return_to_go) FILTER (c.place = least(o.place + 1, c.calls - 1)) AS later
    FROM calls c
    CROSS JOIN own o
    GROUP BY c.rollout_id
),
compared AS (
    SELECT
        count(*) AS rollouts, avg(total) AS mean_total, stddev_samp(total) AS deviation_total,
        avg(total) FILTER (rollout_id <> $rollout) AS others_total,
        avg(here) FILTER (rollout_id <> $rollout) AS others_here,
        avg(later) FILTER (rollout_id <> $rollout) AS others_later
    FROM returns
),
fitted AS (
    SELECT
        avg(place) AS mean_place, avg(return_to_go) AS mean_return,
        (avg(place * return_to_go) - avg(place) * avg(return_to_go)) * count(*)
        / (var_pop(place) * count(*) + 1) AS slope
    FROM calls
),
tools AS (
    SELECT count(*) - count(error_type) AS worked, count(error_type) AS failed
    FROM tool_calls
    WHERE rollout_id = $rollout AND llm_span_id = (SELECT span_id FROM own)
)
SELECT
    o.reward, o.return_to_go, o.advantage, o.next_advantage, o.place, o.calls, o.truncated,
    r.total, c.*, f.*, t.*
FROM own o
JOIN returns r ON r.rollout_id = o.rollout_id
CROSS JOIN compared c
CROSS JOIN fitted f
CROSS JOIN tools t
