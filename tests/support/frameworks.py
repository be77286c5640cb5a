"""The frameworks that are tried, each with its packages and variables: the page's rows."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Framework:
    """One way of building an agent, and what traces it."""

    name: str
    script: str
    packages: tuple[str, ...] = ()
    """Packages of the framework itself, which its user has."""
    instrumentation: tuple[str, ...] = ()
    """Packages to install beside otel-lightning."""
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Name of its environment in the cache."""
        return "openai" if self.packages == ("openai",) else self.script[4:].replace("_", "-")


FRAMEWORKS = (
    Framework("OpenAI, chat completions", "run_openai_chat", ("openai",)),
    Framework("OpenAI, Responses", "run_openai_responses", ("openai",)),
    Framework("Pydantic AI", "run_pydantic_ai", ("pydantic-ai-slim[openai]",)),
    Framework("OpenAI Agents SDK", "run_openai_agents", ("openai-agents",)),
    Framework("LangGraph", "run_langgraph", ("langgraph", "langchain-openai")),
    Framework("AutoGen", "run_autogen", ("autogen-agentchat>=0.4", "autogen-ext[openai]>=0.4")),
    Framework(
        "Microsoft Agent Framework",
        "run_agent_framework",
        ("agent-framework-core", "agent-framework-openai"),
    ),
    Framework("CrewAI", "run_crewai", ("crewai",)),
)
