"""Every attribute and event name that we write: the wire contract with readers of the spans."""

from typing import Final

ROLLOUT_ID: Final = "lightning.rollout.id"
"""The rollout that a span or log record belongs to. Also the name of the baggage entry."""

TASK_ID: Final = "lightning.task.id"
"""The task that the rollout works on. Also the name of the baggage entry."""

PROMPT_TOKEN_IDS: Final = "lightning.prompt_token_ids"  # noqa: S105 - a model's tokens
"""Token ids of the prompt as the model server saw it: an array of integers on an LLM span."""

COMPLETION_TOKEN_IDS: Final = "lightning.completion_token_ids"  # noqa: S105 - likewise
"""Token ids that the model sampled for the first choice: an array of integers on an LLM span.

For further choices, the name ends with the choice's index: `lightning.completion_token_ids.1`.
"""

COMPLETION_LOGPROBS: Final = "lightning.completion_logprobs"
"""Natural-log probability of each sampled token: an array of doubles on an LLM span.

For further choices, the name ends with the choice's index: `lightning.completion_logprobs.1`.
"""

INFERRED: Final = "lightning.inferred"
"""True on a tool span that we made from one call's request and the next call's result: the tool
ran at some time between the span's start and its end."""

PROPENSITY: Final = "lightning.propensity"
"""Probability with which the policy chose the arm, in (0, 1], on `feature_flag.evaluation`.

A flag's metadata gives it per variant, as `lightning.propensity.<variant>`.
"""

POLICY_VERSION: Final = "lightning.policy.version"
"""Version of the policy that chose the arm: text, on the event and in the flag's metadata."""

ASKED_ARM: Final = "lightning.arm"
"""Baggage of a request by `lightning-learn run --arm … --url …`: the arm that it asks for, as JSON
with `key`, `arm`, `propensity` and `version`."""

POLICY: Final = "lightning.policy"
"""A policy that flagd's rules cannot express: arms, features and weights as JSON, in a flag's
metadata.

`otel_lightning.instrumentation.provider` serves it."""

POLICY_CHANGED: Final = "lightning.policy.changed"
"""Names of the request's arguments that an arm of `LIGHTNING_POLICY` changed, on an LLM span."""

FEATURE_FLAG_EVALUATION: Final = "feature_flag.evaluation"
"""OpenTelemetry's event for one evaluation of a feature flag: here, one choice of an arm."""

FEATURE_FLAG_KEY: Final = "feature_flag.key"
"""The flag's key: which choice was made."""

FEATURE_FLAG_VARIANT: Final = "feature_flag.result.variant"
"""The variant that was served: the arm."""

FEATURE_FLAG_REASON: Final = "feature_flag.result.reason"
"""Why this variant: `targeting_match`, `split`, `static`, `cached`, … in lower case."""

FEATURE_FLAG_CONTEXT_ID: Final = "feature_flag.context.id"
"""The evaluation's targeting key: the unit for which the choice was made, such as a rollout."""

FEATURE_FLAG_PROVIDER_NAME: Final = "feature_flag.provider.name"
"""The OpenFeature provider that answered."""

EVALUATION_RESULT: Final = "gen_ai.evaluation.result"
"""OpenTelemetry's event for one judgement of a response, span or rollout: here, a reward."""

EVALUATION_NAME: Final = "gen_ai.evaluation.name"
"""Name of the measure, such as `solved` or `relevance`."""

EVALUATION_SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
"""The judgement as a double."""

EVALUATION_SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
"""The judgement as a word, such as `pass`."""

EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"
"""Why the judge decided so."""

RESPONSE_ID: Final = "gen_ai.response.id"
"""The model's response that the judgement is about."""

FEEDBACK_ID: Final = "lightning.feedback.id"
"""The sender's own id of a judgement, on `gen_ai.evaluation.result`. Events with one id are one
reward, even if their content differs; the last received event counts."""

ATTEMPT: Final = "lightning.attempt"
"""Event name of a log record about one attempt of `lightning-learn run` at a task. Its body is
JSON; its attributes `output` and `errors` have the end of the agent's output. It becomes a row of
`attempts`."""

TASK: Final = "lightning.task"
"""Event name of a log record with a task of `lightning-learn run`: its body is JSON with the input
and what graders expect. It becomes a row of `tasks`."""

REJECTED_RECORD: Final = "lightning.rejected"
"""Event name of a log record that replaces, on the spool, a record that cannot be stored. Its body
is the reason. It becomes a row of `rejected`."""

TRUNCATED: Final = "lightning.truncated"
"""Keys of the attributes whose values were cut before they were stored, as a JSON array."""

DROPPED_ATTRIBUTES: Final = "lightning.dropped_attributes"
"""Number of attributes that were dropped before a record was stored, because it had too many."""
