"""Judges that use the evaluators of the package azure-ai-evaluation, with their prompts."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from otel_lightning.collector.show.conversation import arguments_of, text_or_json
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.judges.answers import Answer
from otel_lightning.learner.score.judges.conversation import Part, Turn
from otel_lightning.learner.score.judges.endpoint import Endpoint, Payload, no_answer
from otel_lightning.learner.score.judges.presentation import PART_CHARACTERS, clip
from otel_lightning.learner.score.judges.record import Record
from otel_lightning.learner.score.judges.rubric import MEASURES, Rubric

if TYPE_CHECKING:
    import openai

PACKAGE = "azure-ai-evaluation"
# The package prints tracebacks into our output; errors are reported per rollout instead.
QUIET = {"PF_LOGGING_LEVEL": "CRITICAL", "AI_EVALS_DISABLE_EXPERIMENTAL_WARNING": "true"}
Evaluator = Callable[..., dict[str, Any]]


class AzureJudge:
    """A judge with the prompts of Azure AI Evaluation, for any OpenAI-compatible endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Load the package.

        Raises:
            DataError: If it is not installed.
        """
        self._endpoint = endpoint
        self._evaluators = load_evaluators(endpoint)
        self._version = version(PACKAGE)

    def close(self) -> None:
        """Do nothing, because the package closes its connections itself."""

    def prepare(self, rubric: Rubric, record: Record) -> Payload:
        """Build the inputs of the evaluator for the measure of a rubric.

        Raises:
            DataError: If Azure AI Evaluation has no such measure.
        """
        if rubric.name not in MEASURES:
            raise DataError(
                f"Azure AI Evaluation has no measure '{rubric.name}'. Known: {', '.join(MEASURES)}."
                " For rubrics of your own leave out --evaluator azure."
            )
        query, response = split_turns(record.turns)
        return {
            "evaluator": f"{PACKAGE} {self._version} {rubric.name}",
            "model": self._endpoint.model,
            "query": [message for turn in query for message in azure_messages(turn)],
            "response": [message for turn in response for message in azure_messages(turn)],
            "tool_definitions": [_tool(tool) for tool in record.tools],
        }

    def ask(self, payload: Payload) -> Answer:
        """Run the evaluator; the package itself retries failed requests.

        Raises:
            DataError: If the endpoint still fails after the retries.
        """
        # The measure is the last word, behind the package and its version.
        name = payload["evaluator"].rsplit(" ", 1)[1]
        inputs = {key: payload[key] for key in ("query", "response", "tool_definitions")}
        try:
            result = self._evaluators[name](**inputs)
        except Exception as error:  # noqa: BLE001 - it raises any error of parsing the answer
            return self._failure(error)
        return read_result(name, result)

    def _failure(self, error: Exception) -> Answer:
        import openai

        cause = _openai_cause(error)
        if cause is None:
            return Answer(f"{type(error).__name__}: {error}")  # it could not parse the answer
        if isinstance(cause, openai.BadRequestError | openai.UnprocessableEntityError):
            return Answer(str(cause), refused=True)
        raise no_answer(self._endpoint, cause) from error


def load_evaluators(endpoint: Endpoint) -> dict[str, Evaluator]:
    """Create the evaluators of the three measures, by name.

    Raises:
        DataError: If the package is not installed.
    """
    for variable, value in QUIET.items():
        # Before the import below, which reads them.
        os.environ.setdefault(variable, value)
    try:
        from azure.ai.evaluation import IntentResolutionEvaluator, TaskAdherenceEvaluator

        # A private name: the package has no public one for this measure.
        from azure.ai.evaluation._evaluators._task_completion import _TaskCompletionEvaluator
    except ModuleNotFoundError as error:
        raise DataError(
            f"--evaluator azure needs the package '{PACKAGE}'. Install it with: "
            "pip install 'otel-lightning[azure]' (in a checkout: pip install -e '.[azure]')"
        ) from error
    model = {
        "type": "openai",
        "base_url": endpoint.url,
        "model": endpoint.model,
        "api_key": endpoint.api_key,
    }
    kinds = (IntentResolutionEvaluator, TaskAdherenceEvaluator, _TaskCompletionEvaluator)
    return {name: kind(model) for name, kind in zip(MEASURES, kinds, strict=True)}


def split_turns(turns: Sequence[Turn]) -> tuple[Sequence[Turn], Sequence[Turn]]:
    """Split a conversation after the user's last message into the query and the response."""
    end = max((i for i, turn in enumerate(turns) if turn.role == "user"), default=-1) + 1
    return turns[:end], turns[end:]


def azure_messages(turn: Turn) -> Iterator[dict[str, Any]]:
    """Convert a turn to the form of the evaluators; each tool result becomes its own message."""
    content = []
    for part in turn.parts:
        if part.get("type") == "tool_call_response":
            result = clip(text_or_json(part.get("response")), PART_CHARACTERS)
            answer = {"type": "tool_result", "tool_result": result}
            yield {"role": "tool", "tool_call_id": part.get("id"), "content": [answer]}
        elif (written := _content(part)) is not None:
            content.append(written)
    if content:
        role = turn.role if turn.role in ("system", "user") else "assistant"
        yield {"role": role, "content": content}


def read_result(name: str, result: Mapping[str, Any]) -> Answer:
    """Extract the model's raw output, because the evaluators turn a missing score into a 0."""
    properties = result.get(f"{name}_properties") or {}
    outputs = json.loads(properties.get("sample_output") or "[]")
    reason = {"reason": result.get(f"{name}_reason"), "score": None}
    text = outputs[0]["content"] if outputs else json.dumps(reason)
    return Answer(text, properties.get("prompt_tokens"), properties.get("completion_tokens"))


def _content(part: Part) -> dict[str, Any] | None:
    if part.get("type") == "text":
        return {"type": "text", "text": clip(text_or_json(part.get("content")), PART_CHARACTERS)}
    if part.get("type") == "tool_call":
        call = {"tool_call_id": part.get("id"), "name": part.get("name")}
        return {"type": "tool_call", **call, "arguments": arguments_of(part)}
    return None


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    parameters = tool.get("parameters")
    if not isinstance(parameters, Mapping):
        parameters = {"type": "object", "properties": {}}
    description = tool.get("description") or ""
    return {"name": tool.get("name"), "description": description, "parameters": parameters}


def _openai_cause(error: BaseException | None) -> "openai.OpenAIError | None":
    import openai

    # The package wraps errors of the client in its own.
    while error is not None and not isinstance(error, openai.OpenAIError):
        error = error.__cause__
    return error
