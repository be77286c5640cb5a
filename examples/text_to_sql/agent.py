"""Answer questions about a SQLite database with LangGraph: write, execute, check, rewrite.

OPENAI_BASE_URL and OPENAI_API_KEY say where the model is, OPENAI_MODEL which one to ask for.

    echo '{"database": "shop.sqlite", "question": "How many tracks are there?"}' | python agent.py
"""

import json
import os
import sys
from functools import cache
from typing import Any, TypedDict

from database import schema, shown
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from prompts import CHECK, REWRITE, WRITE

MOST_TURNS = 3


class State(TypedDict, total=False):
    """What the nodes of the graph share."""

    database: str
    question: str
    query: str
    result: str
    verdict: str
    turns: int


@cache
def model() -> ChatOpenAI:
    """Return the client of the model."""
    return ChatOpenAI(
        model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"), max_completion_tokens=120
    )


def ask(system: str, *parts: str) -> str:
    """Ask the model, and return its answer as text."""
    answer = model().invoke([("system", system), ("user", "\n".join(parts))])
    return str(answer.content).strip()


def write_query(state: State) -> State:
    """Write a first query."""
    prompt = WRITE.format(schema=schema(state["database"]))
    return {"query": ask(prompt, state["question"]), "turns": 1}


def execute_query(state: State) -> State:
    """Run the query, and keep its first rows or its error as text."""
    return {"result": shown(state["database"], state["query"])}


def check_query(state: State) -> State:
    """Ask the model whether the query answers the question."""
    return {"verdict": ask(CHECK, state["question"], state["query"], state["result"])}


def rewrite_query(state: State) -> State:
    """Write a better query."""
    prompt = REWRITE.format(schema=schema(state["database"]))
    query = ask(prompt, state["question"], state["query"], state["result"])
    return {"query": query, "turns": state["turns"] + 1}


def is_done(state: State) -> bool:
    """Return whether the query was found correct, or there were enough turns."""
    return "wrong" not in state["verdict"] or state["turns"] >= MOST_TURNS


@cache
def graph() -> Any:
    """Build the graph of the agent."""
    built = StateGraph(State)
    for node in (write_query, execute_query, check_query, rewrite_query):
        built.add_node(node.__name__, node)
    built.add_edge(START, "write_query")
    built.add_edge("write_query", "execute_query")
    built.add_edge("execute_query", "check_query")
    built.add_conditional_edges("check_query", is_done, {True: END, False: "rewrite_query"})
    built.add_edge("rewrite_query", "execute_query")
    return built.compile()


def answer(task: dict[str, Any]) -> str:
    """Answer one question; the query is the answer."""
    start: State = {"database": task["database"], "question": task["question"]}
    return str(graph().invoke(start)["query"])


if __name__ == "__main__":
    print(answer(json.load(sys.stdin)))
