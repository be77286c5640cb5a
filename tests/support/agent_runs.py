"""Agents and graders of runs, and the command that starts them."""

import sys
from collections.abc import Callable
from pathlib import Path

Tasks = Callable[..., Path]


Agent = Callable[[str], list[str]]


def rule(folder: Path, body: str) -> str:
    (folder / "grade.py").write_text(f"import polars as pl\n{body}\n")
    return f"{folder}/grade.py:right"


RIGHT = """
def right(rollouts):
    return (rollouts["output"].str.strip_chars() == rollouts["expected"]).cast(float)"""


def running_command(store: Path, tasks: Path) -> list[str]:
    """Return the command of a run, up to the option whose value is its name."""
    words = [sys.executable, "-m", "otel_lightning.learner", "run", "--store", str(store)]
    return [*words, "--tasks", str(tasks), "--exit-code-is-reward", "--name"]


REWARDED = """
import socket
def send(name, value, at):
    said = {"gen_ai.evaluation.name": {"stringValue": name},
            "gen_ai.evaluation.score.value": {"doubleValue": value},
            "lightning.rollout.id": {"stringValue": os.environ["LIGHTNING_ROLLOUT_ID"]}}
    record = {"timeUnixNano": str(at), "eventName": "gen_ai.evaluation.result",
              "attributes": [{"key": key, "value": value} for key, value in said.items()]}
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
    host, port = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST /v1/logs HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n"
        head += f"Content-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
        connection.sendall(head.encode() + body)
        assert b" 200 " in connection.recv(4096)
if task["id"] != "silent":
    now = time.time_ns()
    send("success", 0.25, now)
    send("success", task["worth"], now + 1)  # the last judgement counts
    send("speed", 9.0, now + 2)
if task["id"] == "killed":
    os.kill(os.getpid(), 9)"""
