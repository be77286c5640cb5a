"""Load a model, open the port and answer until the process receives a stop signal."""

import contextlib
import socket
from errno import EACCES, EADDRINUSE
from pathlib import Path

import click
import torch
import uvicorn
from transformers.utils import logging

from otel_lightning.collector.files.atomic import replaced
from otel_lightning.collector.files.reason import reason
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.model_server.app import ServedModel, Serving, make_app
from otel_lightning.learner.weights.trainer.load import (
    holds_adapter,
    load_tokenizer,
    read_adapter,
    read_model,
)


def load(folder: Path, serving: Serving) -> ServedModel:
    """Load a model, or a base model with its LoRA adapter, and the tokenizer.

    It goes to the GPU where there is one, in the precision in which it was saved; on a CPU it
    runs in float32.

    Raises:
        DataError: If the folder holds no model or no tokenizer with a chat template.
    """
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    is_adapter = holds_adapter(folder)
    tokenizer = load_tokenizer(folder)
    if not tokenizer.chat_template:
        raise DataError(
            f"The tokenizer in '{folder}' has no chat template, so chat messages cannot become a "
            "prompt. Add a chat_template.jinja to the folder."
        )
    has_gpu = torch.cuda.is_available()
    dtype = "auto" if has_gpu else torch.float32
    model = (read_adapter if is_adapter else read_model)(folder, dtype=dtype)
    model.to("cuda" if has_gpu else "cpu")
    return ServedModel(serving, model, tokenizer)


def listen(host: str, port: int) -> socket.socket:
    """Open the port; 0 takes a free one.

    Raises:
        OSError: If the port is taken, or the host is not this machine's.
    """
    try:
        listener = socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        of_port = isinstance(error, OverflowError) or error.errno in (EADDRINUSE, EACCES)
        advice = "Try --port 0." if of_port else "Give --host an address of this machine."
        why = reason(error).partition(" (while")[0]  # the address again
        raise OSError(f"Cannot listen on {host}:{port}: {why}. {advice}") from None
    # asyncio does this for sockets that it opens itself; without it each answer waits 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(served: ServedModel, listener: socket.socket, port_file: Path | None) -> None:
    """Answer requests until the process receives a stop signal."""
    host, port = listener.getsockname()[:2]
    if port_file:
        # Another process polls for the file and must never see it empty.
        with replaced(port_file) as temporary:
            temporary.write_text(f"{port}\n", encoding="utf-8")
    click.echo(f"'{served.names[0]}' answers on http://{host}:{port}/v1")
    server = uvicorn.Server(uvicorn.Config(make_app(served), log_level="warning"))
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
