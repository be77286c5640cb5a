"""The shop's agent: one question, one call of the model, on the official OpenAI client.

Its system prompt is a feature flag. The evaluation context says what kind of question it is, so
that a flag file can choose the prompt by it. OPENAI_BASE_URL and OPENAI_API_KEY say where the
model is.

    python shop_agent.py --questions questions.jsonl --answers answers.jsonl --flags flags.json
"""

import argparse
import json
from pathlib import Path

from openai import OpenAI
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext

FLAG = "shop-prompt"
DEFAULT_PROMPT = "You work in a shop."


def main() -> None:
    """Answer every question of a file, one line each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--flags", type=Path, required=True)
    options = parser.parse_args()
    path = str(options.flags.resolve(strict=True))
    api.set_provider_and_wait(
        FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=path)
    )
    flags, client = api.get_client(), OpenAI()
    with options.answers.open("w", encoding="utf-8") as answers:
        for line in options.questions.read_text(encoding="utf-8").splitlines():
            question = json.loads(line)
            context = EvaluationContext(
                question["id"], {"counting": "together" in question["text"]}
            )
            prompt = flags.get_string_value(FLAG, DEFAULT_PROMPT, context)
            messages = [
                {"role": "system", "content": prompt},
                {"role": "user", "content": question["text"]},
            ]
            answer = client.chat.completions.create(model="shop", messages=messages)
            text = answer.choices[0].message.content
            row = {"id": question["id"], "response_id": answer.id, "text": text}
            answers.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
