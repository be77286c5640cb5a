"""Serve a model to the agents of a run: by vLLM where it is installed, else by our small server."""

import json
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path

from otel_lightning.collector.files.atomic import make_private
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.launcher.processes import Processes, Spec, wait_until

READY_SECONDS = 900.0
"""Loading a large model takes minutes."""
GREEDY_FLAG = "lightning-evaluate"


@contextmanager
def serving(
    model: str, names: Sequence[str], folder: Path, *, greedy: bool
) -> Iterator[dict[str, str]]:
    """Serve a model during the block.

    Args:
        model: Folder of a model or of a LoRA adapter, or the URL of a server.
        names: Names by which agents ask for the model.
        folder: Where the server's output goes.
        greedy: Answer with the most likely tokens, whatever an agent asks for.

    Yields:
        Variables that lead an agent to the model.

    Raises:
        DataError: If there is no such model, or its server does not start.
    """
    check_model(model)
    if is_url(model):
        yield _variables(model, _greedy_by_policy(folder) if greedy else None)
        return
    path = Path(model)
    make_private(folder)
    with Processes() as processes:
        start = _start_vllm if find_spec("vllm") else _start_ours
        url = start(path, names or [path.resolve().name], processes, folder, greedy=greedy)
        by_policy = greedy and start is _start_vllm
        yield _variables(url, _greedy_by_policy(folder) if by_policy else None)


def is_url(model: str) -> bool:
    """Return whether a model is named by the URL of its server, and not by its folder."""
    return model.startswith(("http://", "https://"))


def check_model(model: str) -> None:
    """Refuse what is neither a URL nor a folder of a model or of an adapter.

    Raises:
        DataError: If it is neither.
    """
    files = (Path(model) / name for name in ("config.json", "adapter_config.json"))
    if not is_url(model) and not any(file.is_file() for file in files):
        raise DataError(f"'{model}' is neither a model's folder nor a server's URL.")


def greedy_by_policy(model: str) -> bool:
    """Return whether greedy answers of a model depend on `LIGHTNING_POLICY` in the agent."""
    return is_url(model) or find_spec("vllm") is not None


def _variables(url: str, policy: Path | None) -> dict[str, str]:
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url}
    # OpenAI's clients refuse to start without a key, and a local server reads none.
    if "OPENAI_API_KEY" not in os.environ:
        variables["OPENAI_API_KEY"] = "none"
    return variables | ({"LIGHTNING_POLICY": str(policy)} if policy else {})


def _greedy_by_policy(folder: Path) -> Path:
    """Write a flag file that sets the temperature of every model call to 0."""
    if "LIGHTNING_POLICY" in os.environ:
        raise DataError(
            "LIGHTNING_POLICY is set, and greedy answers of this server need it. Unset it, or "
            "leave the greedy part out with --no-greedy."
        )
    make_private(folder)
    flag = {
        "state": "ENABLED",
        "variants": {"greedy": {"temperature": 0}},
        "defaultVariant": "greedy",
    }
    file = folder.resolve() / "greedy.json"
    file.write_text(json.dumps({"flags": {GREEDY_FLAG: flag}}), encoding="utf-8")
    return file


def _start_ours(
    model: Path, names: Sequence[str], processes: Processes, folder: Path, *, greedy: bool
) -> str:
    port_file = folder.resolve() / "port"
    # A former run may have left it: `wait_until` takes the file as the sign that the server
    # listens.
    port_file.unlink(missing_ok=True)
    words = [sys.executable, "-m", "otel_lightning.learner", "serve", "--model", str(model)]
    words += ["--port", "0", "--port-file", str(port_file), "--seed", "0"]
    words += [word for name in names for word in ("--name", name)]
    words += ["--temperature", "0"] if greedy else []
    spec = Spec("model-server", words, folder, is_service=True, grace=10.0)
    processes.start(spec)
    wait_until(processes, spec, port_file.exists, READY_SECONDS, f"The server of '{model}'")
    return f"http://127.0.0.1:{port_file.read_text(encoding='utf-8').strip()}/v1"


def _start_vllm(
    model: Path, names: Sequence[str], processes: Processes, folder: Path, *, greedy: bool
) -> str:
    del greedy  # its requests say it
    port = _free_port()
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--seed", "0"]
    adapter = model / "adapter_config.json"
    if adapter.is_file():
        base = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
        loras = [f"{name}={model.resolve()}" for name in names]
        # vLLM serves an adapter beside its base, under the adapter's names.
        words += ["--model", base, "--enable-lora", "--lora-modules", *loras]
    else:
        words += ["--model", str(model), "--served-model-name", *names]
    spec = Spec("vllm", words, folder, is_service=True, grace=30.0)
    processes.start(spec)
    url = f"http://127.0.0.1:{port}/v1"
    wait_until(processes, spec, lambda: is_ready(f"{url}/models"), READY_SECONDS, "vLLM")
    return url


def is_ready(url: str) -> bool:
    """Return whether a URL answers with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - the user's own URL
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, ValueError):  # an HTTP error is an OSError too
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        # Another process may take the port before vLLM binds it; vLLM then ends, and `wait_until`
        # says so.
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
