"""Why a control may gain: models that no true reward has reached, beside the base.

    python tests/bench/weights_controls.py [--seeds 3] [--draws 3] [--only sql,desk]

- rft on coins: the stored rewards are coin flips of the true success rate. No true reward is in the
  store, so nothing of the selection, the caps or the steps can let one through.
- SFT on everything, and on the first query of each rollout only: without the rewritten ones.
- More demonstrations: the base's own training goes on for as many steps, with no rollouts at all.
- Noise: the base with random changes of its weights, of each tensor as large as rft on coins made.

The last column is the entropy of an answer to the first call, in nats: the mean of -log p over the
sampled answers. A model that only got sharper has less of it.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import numpy as np
import torch
import weights
from transformers import AutoModelForCausalLM, AutoTokenizer
from weights_agents import Problem, Rollout, Sampling, log, rewards_of, run
from weights_cells import Cell, Cells
from weights_tables import HEATS, WARM, repeated_gain

from otel_lightning.learner.transitions.make import Settings, make_transitions
from otel_lightning.learner.weights.learn import learn_weights
from otel_lightning.learner.weights.learning_rate import default_learning_rate
from otel_lightning.learner.weights.settings import Training
from shared.small_model import encode, fit
from text_to_sql import task as example

EVERYTHING = {"threshold": -1.0, "algorithm": {"fewest_calls": False}}
STEPS = 60
BATCH = 16
Make = Callable[[int], Path]
"""Makes a model, by the number of the draw."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One model of one seed."""

    cell: Cell
    entropy: float


class Controls:
    """The controls of one problem and seed."""

    def __init__(self, problem: Problem, base: Path, seed: int, folder: Path) -> None:
        self._problem, self.base, self._seed, self._folder = problem, base, seed, folder
        size = weights.Size()
        tasks, self._new = problem.tasks(base, seed, size.logged, size.new)
        self._logged = run(problem, base, tasks, Sampling(size.attempts, 100 + seed, 1.0))

    def models(self) -> Iterator[tuple[str, Make, bool]]:
        """Name each control: how to make it, and whether chance has a part in it."""
        yield "rft on coins", self._coins, True
        yield "SFT on everything", lambda _: self._learned(self._logged, **EVERYTHING), False
        if self._problem.name == "sql":
            yield "SFT on first queries", self._first_calls, False
            yield "more demonstrations", self._demonstrated, True
        yield "noise", self._noisy, True

    def measured(self, model: Path) -> Measured:
        """Run the agent on the tasks that judge."""
        cell, entropy = Cell(), float("nan")
        for heat, temperature in HEATS.items():
            how = Sampling(2 if temperature else 1, 7000 + self._seed, temperature)
            rollouts = run(self._problem, model, self._new, how)
            cell.rewards[heat] = rewards_of(rollouts)
            if heat == WARM:
                entropy = -float(np.mean([sum(r.calls[0].completion.logprobs) for r in rollouts]))
        return Measured(cell, entropy)

    def _coins(self, draw: int) -> Path:
        rate = float(np.mean([one.reward for one in self._logged]))
        rng = self._random(draw)
        flipped = [replace(one, reward=float(rng.random() < rate)) for one in self._logged]
        return self._learned(flipped)

    def _first_calls(self, _: int) -> Path:
        return self._learned(self._logged, self._problem.learners[:1], **EVERYTHING)

    def _learned(
        self, rollouts: Sequence[Rollout], agents: Sequence[str] = (), **given: object
    ) -> Path:
        store, output = self._folder / "traces.duckdb", self._folder / "learned"
        store.unlink(missing_ok=True)
        rmtree(output, ignore_errors=True)
        log(store, rollouts)
        make_transitions(store, Settings(agents=tuple(agents) or self._problem.learners))
        learn_weights(store, "rft", Training(self.base, seed=self._seed, **given), output)
        return output

    def _demonstrated(self, draw: int) -> Path:
        model, tokenizer = _loaded(self.base)
        recipe = replace(
            example.recipe(self.base.parent),
            steps=STEPS,
            batch=BATCH,
            learning_rate=default_learning_rate(model.config.hidden_size, lora=False),
        )
        fit(model, encode(recipe, tokenizer), recipe, self._random(draw))
        return self._saved(model, tokenizer)

    def _noisy(self, draw: int) -> Path:
        """Change the weights as much as `rft on coins` does, in a random direction."""
        changed, _ = _loaded(self._coins(draw))
        model, tokenizer = _loaded(self.base)
        torch.manual_seed(1000 * self._seed + draw)
        with torch.no_grad():
            for old, new in zip(model.parameters(), changed.parameters(), strict=True):
                noise = torch.randn_like(old)
                old.add_(noise * (new - old).norm() / noise.norm())
        return self._saved(model, tokenizer)

    def _random(self, draw: int) -> random.Random:
        return random.Random(1000 * self._seed + draw)  # noqa: S311 - sampling, not cryptography

    def _saved(self, model: object, tokenizer: object) -> Path:
        output = self._folder / "made"
        rmtree(output, ignore_errors=True)
        for part in (model, tokenizer):
            part.save_pretrained(output)
        return output


def _loaded(folder: Path) -> tuple:
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def main() -> None:
    """Print a table for each problem."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--only", default="sql,desk")
    options = parser.parse_args()
    for name in options.only.split(","):
        with TemporaryDirectory() as folder:
            found = _measured(weights.PROBLEMS[name], options, Path(folder))
        print(*_table(weights.PROBLEMS[name].title, found), "", sep="\n", flush=True)


def _measured(
    problem: Problem, options: argparse.Namespace, folder: Path
) -> Mapping[str, list[list[Measured]]]:
    """Measure each model: by its name, of each seed, the draws."""
    cells = Cells(folder / "none.json")
    bench = weights.Bench(problem, weights.Size(), cells, folder)
    bench.train_base()
    found: dict[str, list[list[Measured]]] = {}
    for seed in range(options.seeds):
        controls = Controls(problem, bench.base, seed, folder)
        found.setdefault("base", []).append([controls.measured(bench.base)])
        for name, make, varies in controls.models():
            draws = range(options.draws if varies else 1)
            measured = [controls.measured(make(draw)) for draw in draws]
            found.setdefault(name, []).append(measured)
            told = {heat: [round(one.cell.mean(heat), 2) for one in measured] for heat in HEATS}
            weights.say(f"{problem.name}, seed {seed}, {name}: {told}")
    return found


def _table(title: str, found: Mapping[str, list[list[Measured]]]) -> Iterator[str]:
    yield (
        f"| {title} | models | T = 1 | gain | 95 % | greedy | gain | 95 % | s.d. of greedy | nats |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, seeds in found.items():
        models = [one for draws in seeds for one in draws]
        cells = [name, str(len(models))]
        for heat in HEATS:
            cells.append(f"{np.mean([one.cell.mean(heat) for one in models]):.3f}")
            gained = repeated_gain(list(_differences(found["base"], seeds, heat)))
            bounds = f"{gained.lower:+.3f} to {gained.upper:+.3f}"
            cells += ["", ""] if name == "base" else [f"{gained.gain:+.3f}", bounds]
        spread = [np.std([one.cell.mean("greedy") for one in d], ddof=1) for d in seeds if d[1:]]
        cells.append(f"{np.mean(spread):.3f}" if spread else "")
        cells.append(f"{np.mean([one.entropy for one in models]):.2f}")
        yield f"| {' | '.join(cells)} |"


def _differences(
    bases: Sequence[Sequence[Measured]], seeds: Sequence[Sequence[Measured]], heat: str
) -> Iterator[dict[str, float]]:
    for (base,), draws in zip(bases, seeds, strict=True):
        before = base.cell.rewards[heat]
        for one in draws:
            after = one.cell.rewards[heat]
            yield {task: float(np.mean(after[task]) - np.mean(before[task])) for task in before}


if __name__ == "__main__":
    main()
