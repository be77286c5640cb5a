"""`lightning-learn serve`."""

from pathlib import Path
from typing import Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.learner.commands.common import FILE, expected_errors, option
from otel_lightning.learner.commands.values import Finite

FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command(epilog=example("lightning-learn serve --model learned-model --port 8000"))
@option(
    "--model",
    command="serve",
    type=FOLDER,
    required=True,
    help="Folder of the model, or of a LoRA adapter.",
)
@option(
    "--host", metavar="ADDRESS", command="serve", default="127.0.0.1", help="Address to listen on."
)
@option(
    "--port",
    command="serve",
    type=click.IntRange(0, 65535),
    default=8000,
    help="Port to listen on; 0 chooses a free one.",
)
@option(
    "--port-file",
    command="serve",
    type=FILE,
    help="Write the port to this file once the server answers. By default none is written.",
)
@option(
    "--name",
    metavar="NAME",
    command="serve",
    multiple=True,
    help="Name that requests give for the model; may be repeated.  [default: the folder's name]",
)
@option(
    "--temperature",
    command="serve",
    type=Finite(0, 2),
    help="Temperature of all answers, also if a request has another one; 0 takes the most likely "
    "token. By default the temperature of each request is used.",
)
@option(
    "--seed",
    command="serve",
    type=int,
    help="Give the same answers in every run to requests that have no seed. By default such "
    "answers differ.",
)
def serve(model: Path, host: str, port: int, port_file: Path | None, **settings: Any) -> None:
    """Serve a small model to OpenAI clients, with token ids and logprobs.

    Meant for tests, examples and comparisons; use vLLM for large models and many requests.
    """
    with expected_errors():
        import torch

        from otel_lightning.learner.model_server import run
        from otel_lightning.learner.model_server.app import Serving

        torch.set_num_threads(1)
        settings["names"] = settings.pop("name") or (model.resolve().name,)
        with run.listen(host, port) as listener:
            run.serve(run.load(model, Serving(**settings)), listener, port_file)
