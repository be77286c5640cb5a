import re
from pathlib import Path

import pytest

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.judges.rubric import (
    MEASURES,
    measure,
    parse_markdown,
    parse_toml,
    read_rubric,
)

ROOT = Path(__file__).parents[3]


def test_the_measures_have_the_scales_of_azure_ai_evaluation() -> None:
    # azure-ai-evaluation 1.18.10: intent resolution 1 to 5, passing from 3; the others 0 or 1.
    scales = {name: (measure(name).lowest, measure(name).highest) for name in MEASURES}
    assert scales == {
        "intent_resolution": (1, 5),
        "task_adherence": (0, 1),
        "task_completion": (0, 1),
    }
    assert measure("intent_resolution").passes == 3


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.txt", "", "a rubric is a .toml or .md file"),
        ("a.toml", "name =", "not TOML"),
        ("a.toml", 'title = "x"', "unknown key 'title'. Known: highest, instructions, lowest"),
        ("a.toml", 'name = "x"\ninstructions = "y"', "'lowest' must be a number, not None."),
        ("a.toml", "name = 1", "'name' must be a text, not 1."),
        ("a.md", "Is it polite?", "no scale. Add a line such as 'Scale: 1 to 5, passes from 3'."),
        ("a.md", "Polite?\nScale: 5 to 1", "'lowest' is not below 'highest'."),
        ("a b.md", "Polite?\nScale: 1 to 5", "'a b' cannot name a score."),
        ("a.md", "Scale: 1 to 5", "no instructions."),
    ],
)
def test_a_bad_rubric_says_what_is_wrong_with_it(
    tmp_path: Path, name: str, text: str, error: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(DataError) as raised:
        read_rubric(file)
    assert str(file) in str(raised.value)
    assert error in str(raised.value)


@pytest.mark.parametrize("name", ["a.toml", "a.md"])
def test_a_rubric_that_is_not_utf8_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes("höflich".encode("latin-1"))
    with pytest.raises(OSError, match=rf"'{file}' is not UTF-8 text .* Save it as UTF-8"):
        read_rubric(file)


def test_the_rubrics_of_the_how_to_are_one_rubric_in_two_forms() -> None:
    page = (ROOT / "docs" / "how-to" / "judge-rollouts.md").read_text()
    written = dict(re.findall(r"```(markdown|toml)\n(.*?)```", page, re.DOTALL))
    assert parse_markdown(written["markdown"], "tone.md") == parse_toml(written["toml"], "x")


def test_markdown_is_shown_to_the_judge_without_its_scale(tmp_path: Path) -> None:
    file = tmp_path / "tone.md"
    file.write_text("# Tone\n\nIs it polite?\n\nScale: -1 to 1\n")
    rubric = read_rubric(file)
    assert (rubric.name, rubric.lowest, rubric.highest, rubric.passes) == ("tone", -1, 1, None)
    assert rubric.instructions == "# Tone\n\nIs it polite?"
