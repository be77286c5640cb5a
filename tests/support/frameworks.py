"""The frameworks that are tried, each with its packages and variables: the page's rows."""

from dataclasses import dataclass, field
from pathlib import Path

PLACE = Path(__file__).parents[1] / "instrumentation" / "frameworks"


@dataclass(frozen=True)
class Framework:
    """One way of building an agent, and what traces it."""

    name: str
    script: str
    """Name of the agent's file in `agents/`, without its ending."""
    folder: str
    """Name of its environment: `requirements/FOLDER.txt`, or for JavaScript `npm/FOLDER`."""
    packages: tuple[str, ...] = ()
    """Packages of the framework itself, which its user has."""
    instrumentation: tuple[str, ...] = ()
    """Packages to install for tracing, beside otel-lightning in Python."""
    variables: dict[str, str] = field(default_factory=dict)
    """`{endpoint}` stands for the collector and `{folder}` for the agent's folder."""
    in_code: str = ""
    """A line that the agent's own code needs, if any."""
    gaps: tuple[str, ...] = ()
    """What the packages do not record, in words for the page."""
    javascript: bool = False
    unseen_calls: frozenset[str] = frozenset()
    """Tasks whose model calls are not recorded: one of `gaps` says which."""
    unseen_tools: frozenset[str] = frozenset()
    """Tasks whose tools are not recorded: one of `gaps` says which."""

    @property
    def recording(self) -> str:
        """Name of its recording in `tests/data`."""
        return f"agent_{self.script.removeprefix('run_')}"


RETRIEVERS = (
    Framework(
        "LangSmith",
        "retrieve_langsmith",
        "langsmith",
        ("langsmith", "langchain-core"),
        variables={
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_OTEL_ENABLED": "true",
            "LANGSMITH_OTEL_ONLY": "true",
        },
    ),
    Framework(
        "LangChain, traced by LangSmith",
        "retrieve_langchain",
        "langsmith",
        ("langsmith", "langchain-core"),
        variables={
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_OTEL_ENABLED": "true",
            "LANGSMITH_OTEL_ONLY": "true",
        },
    ),
    Framework(
        "MLflow",
        "retrieve_mlflow",
        "mlflow",
        ("mlflow-skinny",),
        variables={
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{endpoint}/v1/traces",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "MLFLOW_TRACKING_URI": "file://{folder}/mlruns",
        },
    ),
    Framework(
        "Langfuse",
        "retrieve_langfuse",
        "langfuse",
        ("langfuse",),
        variables={
            "LANGFUSE_PUBLIC_KEY": "pk-lf-none",
            "LANGFUSE_SECRET_KEY": "sk-lf-none",
            "LANGFUSE_BASE_URL": "{endpoint}",
        },
    ),
    Framework(
        "LangWatch",
        "retrieve_langwatch",
        "langwatch",
        ("langwatch",),
        variables={"LANGWATCH_API_KEY": "none", "LANGWATCH_ENDPOINT": "{endpoint}"},
    ),
    Framework(
        "LlamaIndex, with a reranker",
        "retrieve_llama_index",
        "llama-index",
        ("llama-index-core", "llama-index-llms-openai"),
        ("openinference-instrumentation-llama-index",),
        in_code="LlamaIndexInstrumentor().instrument()",
    ),
)
"""Libraries that trace a retriever with their own SDK. The page does not list them."""
FRAMEWORKS = (
    Framework("OpenAI, chat completions", "run_openai_chat", "openai", ("openai",)),
    Framework("OpenAI, streamed", "run_openai_stream", "openai", ("openai",)),
    Framework("OpenAI, Responses", "run_openai_responses", "openai", ("openai",)),
    Framework(
        "Anthropic",
        "run_anthropic",
        "anthropic",
        ("anthropic",),
        ("opentelemetry-instrumentation-anthropic",),
    ),
    Framework("LangGraph", "run_langgraph", "langgraph", ("langgraph", "langchain-openai")),
    Framework("OpenAI Agents SDK", "run_openai_agents", "openai-agents", ("openai-agents",)),
    Framework("AutoGen", "run_autogen", "autogen", ("autogen-agentchat", "autogen-ext[openai]")),
    Framework(
        "CrewAI",
        "run_crewai",
        "crewai",
        ("crewai",),
        ("opentelemetry-instrumentation-crewai",),
    ),
    Framework(
        "Microsoft Agent Framework, Responses",
        "run_agent_framework",
        "agent-framework",
        ("agent-framework-core", "agent-framework-openai"),
    ),
    Framework(
        "Microsoft Agent Framework, chat completions",
        "run_agent_framework_chat",
        "agent-framework",
        ("agent-framework-core", "agent-framework-openai"),
    ),
    Framework(
        "Pydantic AI",
        "run_pydantic_ai",
        "pydantic-ai",
        ("pydantic-ai-slim[openai]",),
        gaps=(
            "A tool that raises ends the run; only `Agent.instrument_all()` records such a tool.",
        ),
        unseen_tools=frozenset({"Atlantis"}),
    ),
    Framework(
        "Pydantic AI, sub-agents",
        "run_pydantic_ai_sub_agents",
        "pydantic-ai",
        ("pydantic-ai-slim[openai]",),
        in_code="Agent.instrument_all()",
    ),
    Framework(
        "OpenAI in JavaScript",
        "run_js_openai",
        "openai",
        ("openai",),
        ("@arizeai/openinference-instrumentation-openai", "@opentelemetry/sdk-node"),
        gaps=(
            "A model call that fails is not recorded.",
            "A streamed answer has no response id and no token counts.",
        ),
        unseen_calls=frozenset({"Nowhere"}),
        javascript=True,
    ),
    Framework(
        "Vercel AI SDK",
        "run_js_ai_sdk",
        "ai-sdk",
        ("ai", "@ai-sdk/openai"),
        ("@ai-sdk/otel", "@opentelemetry/sdk-node"),
        javascript=True,
    ),
)
