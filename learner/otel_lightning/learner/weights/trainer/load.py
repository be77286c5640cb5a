"""Load the model to be fine-tuned, and say plainly why a folder or a tokenizer cannot be used."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    set_seed,
)

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.settings import Training
from otel_lightning.learner.weights.trainer.distributed import state
from otel_lightning.learner.weights.trainer.failures import is_out_of_memory

LORA_ALPHA = 32
"""LoRA's scale, at which the best learning rate hardly depends on the rank.

Source: Schulman et al., LoRA Without Regret (2025).
"""


class Loaded(NamedTuple):
    """A model and its tokenizer."""

    model: Any
    tokenizer: PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Precision:
    """In which numbers weights are kept, and in which they are multiplied."""

    weights: torch.dtype
    bf16: bool
    """Whether multiplications run in bfloat16 (mixed precision)."""


def precision(dtype: str, *, adapter: bool) -> Precision:
    """Choose the precision.

    `auto` is bfloat16 where the hardware has it: all weights stay in float32 and only
    multiplications use bfloat16, unless an adapter is trained: then the frozen weights are
    bfloat16 too. Elsewhere it is float32.
    """
    has_bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    bf16 = has_bf16 if dtype == "auto" else dtype == "bfloat16"
    return Precision(torch.bfloat16 if bf16 and adapter else torch.float32, bf16)


def device() -> torch.device:
    """Name the device of this process: its accelerator where there is one, else the CPU."""
    return torch.device(state().device)


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model.

    Raises:
        DataError: If the folder holds none.
    """
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True
        )
    except Exception as error:
        # It also reads config.json, and damaged files raise errors of any kind.
        raise DataError(
            f"'{path}' holds no tokenizer that transformers can load ({_first_line(error)})."
        ) from error
    if tokenizer.pad_token is None:
        # The usual choice for models without a pad token; masks hide padded positions.
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def holds_adapter(path: Path) -> bool:
    """Return whether a folder holds a LoRA adapter; if not, it holds a whole model.

    Raises:
        DataError: If it holds neither.
    """
    is_adapter = (path / "adapter_config.json").is_file()
    if not is_adapter and not (path / "config.json").is_file():
        raise DataError(
            f"'{path}' holds no model: it has no config.json. Give --model a folder that "
            "lightning-learn weights or transformers' save_pretrained wrote, or a downloaded "
            "snapshot."
        )
    return is_adapter


def load_model(training: Training, *, reward: bool) -> Loaded:
    """Load a model from its folder onto this process's device, with an adapter if asked.

    Args:
        training: Model, precision, adapter, and the seed of what is initialised at random.
        reward: Whether to put a head for scores on it.

    Raises:
        DataError: If the folder holds no model, or a package is missing.
    """
    # An adapter names its base: a pointer such as models/live may lead to the adapter later.
    path = training.model.resolve() if training.model.is_symlink() else training.model
    is_adapter = holds_adapter(path)
    tokenizer = load_tokenizer(path)
    if tokenizer.pad_token is None:
        raise DataError(
            f"The tokenizer in '{path}' has neither an end token nor a pad token, so rows cannot "
            "be filled up to one length. Name its end token as eos_token in tokenizer_config.json."
        )
    set_seed(training.seed)  # a new adapter and a new head begin with random weights
    adapter = is_adapter or training.lora is not None
    chosen = precision(training.dtype, adapter=adapter)
    options: dict[str, Any] = {"dtype": chosen.weights}
    if training.four_bit:
        options["quantization_config"] = _four_bits()
    if is_adapter:
        model = read_adapter(path, is_trainable=True, **options)
    else:
        model = read_model(path, reward=reward, **options)
    if training.four_bit and device().type == "cpu":
        _keep_differentiable(model)
    if training.lora is not None and not is_adapter:
        model = _with_adapter(model, training.lora, reward=reward)
    # Quantized weights are put on the GPU while they are loaded.
    if not training.four_bit:
        model.to(device())
    return Loaded(model, tokenizer)


def read_adapter(path: Path, **options: Any) -> Any:
    """Read a LoRA adapter and its base model, as `options` of `from_pretrained` say.

    Raises:
        DataError: If one of the two cannot be read.
    """
    from peft import AutoPeftModelForCausalLM

    with _refused(path):
        return AutoPeftModelForCausalLM.from_pretrained(path, local_files_only=True, **options)


def read_model(path: Path, *, reward: bool = False, **options: Any) -> Any:
    """Read a whole model, as `options` of `from_pretrained` say.

    Args:
        path: Its folder.
        reward: Whether it gives scores. A new head begins with random weights.
        options: Other arguments of `from_pretrained`.

    Raises:
        DataError: If it cannot be read, or the folder lacks a part of its weights.
    """
    kind: Any = AutoModelForSequenceClassification if reward else AutoModelForCausalLM
    options |= {"num_labels": 1} if reward else {}
    with _refused(path):
        model, loading = kind.from_pretrained(
            path,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # else the error names no weights
            **options,
        )
    absent = loading["missing_keys"] | {name for name, *_ in loading["mismatched_keys"]}
    body = f"{model.base_model_prefix}."
    # transformers fills what is absent with random numbers, which only a new head should have.
    if lacking := sorted(name for name in absent if not reward or name.startswith(body)):
        raise DataError(
            f"The weights in '{path}' lack {len(lacking)} of the tensors that its config.json "
            f"describes, such as '{lacking[0]}', or have them in another shape. Copy or download "
            "the folder again."
        )
    return model


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Turn the errors of loading into one sentence.

    Raises:
        DataError: Instead of the library's error, unless memory ran out.
    """
    try:
        yield
    except SafetensorError as error:
        raise DataError(
            f"The weights in '{path}' are damaged or cut short: {_first_line(error)}. Copy or "
            "download them again."
        ) from error
    except Exception as error:
        # Configurations and weights that do not fit raise errors of any kind.
        if is_out_of_memory(error):
            raise
        raise DataError(
            f"transformers cannot load the model in '{path}': {_first_line(error)}"
        ) from error


def _with_adapter(model: Any, rank: int, *, reward: bool) -> Any:
    from peft import LoraConfig, TaskType, get_peft_model

    task = TaskType.SEQ_CLS if reward else TaskType.CAUSAL_LM
    config = LoraConfig(
        r=rank, lora_alpha=LORA_ALPHA, target_modules="all-linear", task_type=task, lora_dropout=0.0
    )
    return get_peft_model(model, config)


def _four_bits() -> Any:
    """Quantize the frozen weights as QLoRA does.

    Source:
        Dettmers et al., QLoRA (2023, arXiv:2305.14314).
    """
    try:
        import bitsandbytes  # noqa: F401 - transformers loads it by name
    except ModuleNotFoundError:
        raise DataError(
            "--four-bit needs the package 'bitsandbytes'. Install it with: pip install bitsandbytes"
        ) from None
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def _keep_differentiable(model: Any) -> None:
    """Keep bitsandbytes from packing the weights for inference when the model is judged on a CPU.

    On processors with AVX512-BF16 it packs them at the first pass without gradients, and never
    unpacks them. Packed layers pass no gradient to the layers below, so training after judging
    would go on without an error, and with wrong gradients.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _first_line(error: Exception) -> str:
    """Return the first line of an error, and the next one if it announces it by a colon."""
    first, _, rest = str(error).strip().partition("\n")
    return f"{first} {rest.strip().partition(chr(10))[0]}" if first.endswith(":") else first
