-- The curve of a training run: a row is one metric at one optimizer step, for example `loss`,
-- `learning_rate`, `grad_norm`, `eval_loss`. Quantiles of the importance weights of the held-out
-- rollouts are at the last step, named `importance_weight/q05` to `importance_weight/q100`.

CREATE TABLE run_steps (
    run_id VARCHAR NOT NULL,
    step BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    value DOUBLE
);
