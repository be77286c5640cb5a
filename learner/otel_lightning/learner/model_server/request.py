"""Check requests for chat completions; a field that is not supported is refused, never ignored."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator


class ApiError(ValueError):
    """A request that cannot be answered, with the HTTP status that says so."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        self.param = param

    def body(self) -> dict[str, Any]:
        """Shape the error as OpenAI does."""
        error = {"message": str(self), "type": "invalid_request_error", "param": self.param}
        return {"error": error | {"code": None}}


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class Function(_Part):
    """The function of a tool call in an earlier answer; the arguments are text."""

    name: str
    arguments: str


class ToolCall(_Part):
    """A tool call of an earlier answer."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: Function


class TextPart(_Part):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class Message(_Part):
    """One message of the conversation so far."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = ""
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    @field_validator("content")
    @classmethod
    def join_parts(cls, content: str | list[TextPart] | None) -> str:
        """Make one text of all parts."""
        if isinstance(content, list):
            return "".join(part.text for part in content)
        return content or ""


class ToolFunction(_Part):
    """A function that the model may call; the chat template reads all its fields."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: str


class Tool(_Part):
    """A tool that the model may ask for."""

    type: Literal["function"]
    function: ToolFunction


class StreamOptions(_Part):
    """Options of a stream: further chunks beside the answer."""

    include_usage: bool = False


class ChatRequest(_Part):
    """A request for chat completions.

    The fields with one permitted value would change the sampling, which they cannot do here.
    """

    model: str
    messages: list[Message] = Field(min_length=1)
    tools: list[Tool] = []
    temperature: float = Field(default=1.0, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    n: int = Field(default=1, ge=1, le=16)
    seed: int | None = None
    logprobs: bool = False
    return_token_ids: bool = False
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    top_p: Literal[1] = 1
    top_k: Literal[-1] = -1
    min_p: Literal[0] = 0
    top_logprobs: Literal[0] = 0
    frequency_penalty: Literal[0] = 0
    presence_penalty: Literal[0] = 0
    stop: list[str] = Field(default=[], max_length=0)
    logit_bias: dict[str, float] = Field(default={}, max_length=0)
    tool_choice: Literal["auto"] = "auto"


def read_request(body: object) -> ChatRequest:
    """Check the body of a request.

    Raises:
        ApiError: If a field is missing, of the wrong kind, or asks for what is not supported.
    """
    if not isinstance(body, dict):
        raise ApiError("The request body must be a JSON object.")
    # Clients send null for options that are not set.
    fields = {name: value for name, value in body.items() if value is not None}
    if "max_completion_tokens" in fields:
        fields["max_tokens"] = fields["max_completion_tokens"]
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":  # its input is the whole request
            raise ApiError(f"'{param}' is missing.", param) from None
        raise ApiError(f"'{param}': {first['msg']}, not {first['input']!r}.", param) from None
