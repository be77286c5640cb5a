"""What a user can mend is one clear sentence."""

import copy
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file, save_file
from support.desk_bandit import fine_tune, run
from support.late import Late
from support.running import LIMIT_S, background, eventually, finish

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights import settings
from otel_lightning.learner.weights.trainer.checkpoints import last_checkpoint
from otel_lightning.learner.weights.trainer.failures import explained

if TYPE_CHECKING:
    from conftest import Traces

torch: Any = Late("torch")
transformers: Any = Late("transformers")
model_server: Any = Late("otel_lightning.learner.model_server.run")

GIVEN = settings.Training(Path("model"))
TOOLS = json.dumps([{"type": "function", "name": "lookup", "parameters": {}}])


@pytest.fixture
def logged(traces: "Traces", desk: "Callable[[int], Traces]") -> "Traces":
    traces.begin_with(desk(2))
    return traces


@pytest.fixture
def broken(model: Path, tmp_path: Path) -> Callable[..., Path]:
    """Copy the model, and change its files."""

    def change(*missing: str, **settings: Any) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(model, folder)
        for name in missing:
            (folder / name).unlink()
        config = folder / "tokenizer_config.json"
        if config.exists():
            config.write_text(json.dumps(json.loads(config.read_text()) | settings))
        return folder

    return change


def error(traces: "Traces", model: Path, tmp_path: Path, *options: str) -> str:
    result = fine_tune(traces, model, tmp_path / "learned", *options)
    assert result.exit_code == 1, result.output
    assert not (tmp_path / "learned").exists()
    return result.stderr


@pytest.mark.slow
def test_folder_without_a_model(
    logged: "Traces", broken: Callable[..., Path], tmp_path: Path
) -> None:
    message = error(logged, broken("config.json"), tmp_path)
    assert "holds no model: it has no config.json. Give --model a folder" in message


def test_folder_without_weights(
    logged: "Traces", broken: Callable[..., Path], tmp_path: Path
) -> None:
    message = error(logged, broken("model.safetensors"), tmp_path)
    assert "transformers cannot load the model in" in message


def test_weights_that_are_cut_short(
    logged: "Traces", broken: Callable[..., Path], tmp_path: Path
) -> None:
    folder = broken()
    os.truncate(folder / "model.safetensors", 1000)
    message = error(logged, folder, tmp_path)
    assert f"The weights in '{folder}' are damaged or cut short:" in message
    assert "Copy or download them again." in message


def test_weights_that_lack_a_tensor_do_not_begin_at_random(
    logged: "Traces", broken: Callable[..., Path], tmp_path: Path
) -> None:
    folder = broken()
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(weights) if "mlp" in name)
    del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    message = error(logged, folder, tmp_path)
    assert f"lack 1 of the tensors that its config.json describes, such as '{name}'" in message
    with pytest.raises(DataError, match="lack 1 of the tensors"):
        model_server.load(folder, None)


def test_configuration_that_does_not_fit_the_weights(
    logged: "Traces", broken: Callable[..., Path], tmp_path: Path
) -> None:
    folder = broken()
    config = folder / "config.json"
    before = json.loads(config.read_text())
    config.write_text(json.dumps(before | {"hidden_size": 32}))
    assert "or have them in another shape. Copy or download" in error(logged, folder, tmp_path)
    config.write_text(json.dumps(before | {"num_hidden_layers": 3}))
    assert "`num_hidden_layers` (3) must be equal" in error(logged, folder, tmp_path)


def test_tokenizer_without_an_end(
    logged: "Traces", broken: Callable[..., Path], tmp_path: Path
) -> None:
    message = error(logged, broken(eos_token=None, pad_token=None), tmp_path)
    assert "neither an end token nor a pad token" in message


def test_tokenizer_without_chat_template_where_rows_have_no_ids(
    traces: "Traces", broken: Callable[..., Path], tmp_path: Path
) -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    message = error(traces, broken("chat_template.jinja"), tmp_path)
    assert "has no chat template, and 1 of 1 transitions have no token ids" in message


def test_template_that_drops_tools(traces: "Traces", model: Path, tmp_path: Path) -> None:
    traces.call("a", tool_definitions=TOOLS)
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    message = error(traces, model, tmp_path)
    assert "leaves tool definitions out, but 1 transitions offer tools" in message


def test_text_of_another_model(traces: "Traces", model: Path, tmp_path: Path) -> None:
    traces.call("a", prompt_token_ids=[3, 4], completion_token_ids=[5, 6])
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    message = error(traces, model, tmp_path)
    assert "In 1 of 1 transitions the logged token ids, decoded by the tokenizer in" in message


def test_tool_call_token_that_servers_would_drop(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    special = copy.deepcopy(tokenizer)
    special.add_special_tokens({"additional_special_tokens": ["<tool_call>"]})
    folder = tmp_path / "special"
    shutil.copytree(model, folder)
    grown = transformers.AutoModelForCausalLM.from_pretrained(folder)
    grown.resize_token_embeddings(len(special))
    grown.save_pretrained(folder)
    special.save_pretrained(folder)
    ids = special.convert_tokens_to_ids(["<tool_call>", "left", "<end>"])
    traces.call("a", prompt_token_ids=[3], completion_token_ids=ids, output_messages="[]")
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    message = error(traces, folder, tmp_path)
    assert "<tool_call> is a special token of the tokenizer in" in message
    assert 'Set "special": false for it' in message


def test_calls_that_all_have_images(traces: "Traces", model: Path, tmp_path: Path) -> None:
    image = {"type": "uri", "modality": "image", "uri": "https://example.org/1.png"}
    seen = json.dumps([{"role": "user", "parts": [image]}])
    traces.call("a", prompt_token_ids=[3], completion_token_ids=[4], input_messages=seen)
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    message = error(traces, model, tmp_path)
    assert "(1 with images or other parts that tokens cannot carry). Learn from an agent" in message


@pytest.mark.slow
def test_torch_that_is_not_installed(logged: "Traces", model: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from otel_lightning.learner.__main__ import main\n"
        "main()"
    )
    where = ["--store", str(logged.path), "--model", str(model), "--output", str(tmp_path / "new")]
    words = [sys.executable, "-c", program, "weights", "--algorithm", "rft", *where]
    process = finish(*words)
    assert process.returncode == 1
    assert process.stderr == (
        "lightning-learn needs the package 'torch'. Install it with: "
        "pip install 'otel-lightning[learner]' (in a checkout: pip install -e '.[learner]')\n"
    )
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / ".new.checkpoints").exists()


def test_rewards_that_are_all_the_same(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    for rollout in ("a", "b"):
        ids = tokenizer.convert_tokens_to_ids(["left", "<end>"])
        # The reward counts at the last call, so the rewards of the calls differ.
        for step in range(2):
            tokens = {"prompt_token_ids": [3], "completion_token_ids": ids}
            traces.call(rollout, step, output_messages="[]", **tokens)
        traces.reward(rollout, 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    message = error(traces, model, tmp_path)
    assert "All 4 transitions of the train split have the advantage 1" in message


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--steps", "3", "--epochs", "1"], "Give --steps or --epochs, not both."),
        (["--packing"], "--packing fills rows up to a length. Give it with --max-length."),
        (["--four-bit"], "so it needs an adapter to train: add --lora 16."),
        (["--set", "beta"], "'beta' is no NAME=VALUE"),
        (["--set", "beta=1"], "rft has no setting 'beta'. Its settings: threshold=0.0, per_task"),
        (["--set", "per_task=many"], "rft's setting 'per_task' is 'many', but must be of the kind"),
        (["--batch-size", "9", "--accumulate", "2"], "Choose a multiple of 2."),
        (["--resume"], "to resume. Run without --resume."),
        (["--max-length", "3"], "longer than --max-length). Give a larger --max-length"),
        (["--reward-range", "0,0.5"], "A reward of 1 was logged, which is outside --reward-range"),
        (["--each-agent"], "names its agent, so --each-agent has nothing to separate"),
        (["--algorithm", "grpo", "--set", "level=word"], "TRL refuses the setting level = 'word'"),
        (["--algorithm", "grpo", "--set", "loss=mean"], "TRL refuses the setting loss = 'mean'"),
    ],
)
def test_option_that_cannot_be(
    options: list[str], told: str, logged: "Traces", model: Path, tmp_path: Path
) -> None:
    if "--epochs" in options:
        arguments = ["--store", str(logged.path), "--model", str(model), *options]
        where = ["--output", str(tmp_path / "learned"), "--algorithm", "rft"]
        assert told in run("weights", *arguments, *where).stderr
    else:
        assert told in error(logged, model, tmp_path, *options)


@pytest.mark.parametrize("options", [["--find-lr"], ["--stop-early", "2"]])
def test_validation_loss_without_rows_to_measure_it_by(
    options: list[str], traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    """--find-lr took the smallest learning rate then, as if all had diverged."""
    for rollout, word, value in (("a", "left", 1.0), ("b", "right", 0.0)):
        tokens = {"prompt_token_ids": [3], "output_messages": "[]"}
        tokens["completion_token_ids"] = tokenizer.convert_tokens_to_ids([word, "<end>"])
        traces.call(rollout, **tokens)
        traces.reward(rollout, value)
        traces.task(rollout, rollout)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    message = error(traces, model, tmp_path, *options)
    assert "measure the loss on a tenth of the training tasks" in message
    assert "(0 tasks to measure by, 2 to learn from)" in message


def test_what_divides_the_model_is_refused(
    logged: "Traces", model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[trl]\nfsdp = "full_shard"\n')
    message = error(logged, model, tmp_path, "--settings", str(file))
    assert "'fsdp' in [trl] divides a model among GPUs" in message
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert "The variable ACCELERATE_USE_FSDP divides a model" in error(logged, model, tmp_path)


def test_settings_file_with_an_unknown_table(logged: "Traces", model: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[trainer]\nweight_decay = 1\n")
    message = error(logged, model, tmp_path, "--settings", str(file))
    assert "has 'trainer'; only the tables [trl] and [algorithm] are read" in message
    file.write_text("trl = 5\n")
    message = error(logged, model, tmp_path, "--settings", str(file))
    assert f"'{file}': 'trl' must be a table, [trl], with its own settings." in message
    file.write_bytes(b"[trl]\n# \xe9\n")
    message = error(logged, model, tmp_path, "--settings", str(file))
    assert f"'{file}' is not TOML: 'utf-8' codec can't decode" in message


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("weight_decoy = 1", "weight_decoy = 1 of the table [trl]: SFTConfig"),
        ('lr_scheduler_type = "steep"', "lr_scheduler_type = 'steep' of the table [trl]: steep"),
    ],
)
def test_argument_that_the_trainer_does_not_have(
    line: str, told: str, logged: "Traces", model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"[trl]\n{line}\n")
    assert f"TRL refuses {told}" in error(logged, model, tmp_path, "--settings", str(file))


@pytest.mark.slow
def test_loss_that_diverges_names_the_option(logged: "Traces", model: Path, tmp_path: Path) -> None:
    message = error(logged, model, tmp_path, "--learning-rate", "1e30", "--steps", "8")
    assert "training diverged. Lower --learning-rate" in message


@pytest.mark.parametrize("take", [lambda: torch.empty(2**50), lambda: bytearray(2**62)])
def test_memory_that_runs_out_names_the_options(take: Callable[[], object], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Lower --batch-size"), explained(tmp_path, GIVEN):
        take()


def test_memory_that_the_system_refuses_names_the_options(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Lower --batch-size"), explained(tmp_path, GIVEN):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


class TrackerError(Exception):
    """As a tracker's package raises it where nobody has logged in."""

    __module__ = "wandb.errors.errors"


def test_tracker_that_fails_is_named() -> None:
    told = "--report-to wandb failed: No API key configured."
    # Not installed here, so `Training` itself would refuse it.
    given = SimpleNamespace(report_to=("wandb",), trl={}, algorithm={})
    with pytest.raises(DataError, match=told), explained(Path("checkpoints"), given):  # type: ignore[arg-type]
        raise TrackerError("No API key configured.")


def test_folder_with_the_name_of_a_tracker_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trackio").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match="Install it with: pip install trackio"):
        settings.Training(Path("model"), report_to=("trackio",))


@pytest.mark.parametrize("is_complete", [False, True])
def test_disk_that_is_full_names_the_checkpoint_if_there_is_one(
    tmp_path: Path, *, is_complete: bool
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    checkpoint = tmp_path / "checkpoint-5"
    checkpoint.mkdir()
    if is_complete:
        (checkpoint / "trainer_state.json").write_text('{"global_step": 5}')
    with (
        pytest.raises(DataError, match=r"The disk is full, .* No space left on device\)") as told,
        explained(tmp_path, GIVEN),
        full.open("w") as file,
    ):
        file.write("checkpoint")
    assert (f"Continue from '{checkpoint}' with --resume." in str(told.value)) == is_complete


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a running process")
def test_disk_that_has_no_room_for_any_checkpoint_is_left_as_it_was(
    logged: "Traces", model: Path, tmp_path: Path
) -> None:
    program = (
        "import resource, sys\n"
        "from otel_lightning.learner.__main__ import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "main()"
    )
    where = ["--store", str(logged.path), "--model", str(model), "--output", str(tmp_path / "new")]
    how = ["--algorithm", "rft", "--steps", "9", "--save-every", "5"]
    process = finish(sys.executable, "-c", program, "weights", *where, *how)
    assert process.returncode == 1
    assert "The disk is full, or a file became too large" in process.stderr
    assert "--resume" not in process.stderr
    assert not list(tmp_path.glob(".new*"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a running process")
def test_disk_that_fills_during_a_checkpoint_leaves_the_last_good_one(
    logged: "Traces", model: Path, tmp_path: Path
) -> None:
    where = ["--store", str(logged.path), "--model", str(model), "--output", str(tmp_path / "new")]
    how = ["--algorithm", "rft", "--steps", "100000", "--save-every", "5"]
    words = [sys.executable, "-m", "otel_lightning.learner", "weights", *where, *how]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    checkpoints = tmp_path / ".new.checkpoints"
    deadline = time.monotonic() + 300
    with background(*words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while not list(checkpoints.glob("checkpoint-*/trainer_state.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        # No file may grow beyond this: the optimizer's state is larger, as on a disk that is full.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
        _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "The disk is full, or a file became too large" in told
    assert "Traceback" not in told
    assert not (tmp_path / "new").exists()
    assert f"Continue from '{last_checkpoint(checkpoints)}' with --resume." in told
    assert len(list(checkpoints.glob("checkpoint-*"))) == 1  # the incomplete one is gone


def is_begun(checkpoints: Path) -> bool:
    return last_checkpoint(checkpoints) is not None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a running process")
def test_memory_that_runs_out_in_training_leaves_the_last_good_checkpoint(
    logged: "Traces", model: Path, tmp_path: Path
) -> None:
    where = ["--store", str(logged.path), "--model", str(model), "--output", str(tmp_path / "new")]
    how = ["--algorithm", "rft", "--batch-size", "4096", "--save-every", "1"]
    words = [sys.executable, "-m", "otel_lightning.learner", "weights", *where, *how]
    # Large blocks go back to the system at once, so that each step has to ask for them again.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
    checkpoints = tmp_path / ".new.checkpoints"
    options = {"env": environment, "stderr": subprocess.PIPE, "text": True}
    with background(*words, "--steps", "100000", **options) as process:
        eventually(lambda: is_begun(checkpoints) or process.poll() is not None, LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        # What it has now is enough between two steps, and too little for the next one.
        while process.poll() is None:
            assert time.monotonic() < deadline
            with suppress(FileNotFoundError, ProcessLookupError, IndexError):
                pages = Path(f"/proc/{process.pid}/statm").read_text().split()[0]
                most = int(pages) * resource.getpagesize() + 2**26
                resource.prlimit(process.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
            time.sleep(0.02)
        _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1, told
    assert "Training ran out of memory. Lower --batch-size" in told
    assert "Traceback" not in told
    last = last_checkpoint(checkpoints)
    assert f"Continue from '{last}' with --resume, also with another --accumulate" in told
