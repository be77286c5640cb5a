import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_document, flag_file
from otel_lightning.learner.policy.serving.flag_text import (
    member_text,
    with_member_text,
    with_members,
    without_member,
)

DOCUMENT: dict[str, Any] = {
    "$schema": "https://flagd.dev/schema/v0/flags.json",
    "flags": {
        "support-prompt": {
            "state": "ENABLED",
            "variants": {"brief": "Be brief.", "careful": "Prüfe alles.", "old": "Hm."},
            "defaultVariant": "brief",
            "targeting": {
                "fractional": [{"var": "targetingKey"}, ["brief", 50], ["careful", 50], ["old", 0]]
            },
            "metadata": {"owner": "support", "lightning.propensity.old": 0.1},
        },
        "other": {"state": "DISABLED", "variants": {"on": True}, "defaultVariant": "on"},
    },
}


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def with_policy(path: Path, weights: dict[str, int], version: str = "v1") -> str:
    seen = flag_file.read_with_text(path, "support-prompt")
    return flag_file.text_with_policy(seen, "support-prompt", weights, version)


def test_only_targeting_and_our_metadata_change(tmp_path: Path) -> None:
    before = copy.deepcopy(DOCUMENT)
    path = write(tmp_path / "flags.json", DOCUMENT)
    changed = json.loads(with_policy(path, {"brief": 500, "careful": 9500}))
    flag = changed["flags"]["support-prompt"]
    assert flag.pop("targeting") == {
        "fractional": [{"var": "targetingKey"}, ["brief", 500], ["careful", 9500]]
    }
    assert flag.pop("metadata") == {
        "owner": "support",
        "lightning.propensity.brief": 0.05,
        "lightning.propensity.careful": 0.95,
        "lightning.policy.version": "v1",
    }
    del (
        before["flags"]["support-prompt"]["targeting"],
        before["flags"]["support-prompt"]["metadata"],
    )
    assert changed == before


ODD = """{ "$schema": "https://flagd.dev/schema/v0/flags.json",
    "flags":{
	"support-prompt" : {"state": "ENABLED",   "defaultVariant":"brief",
          "variants": { "brief": "B\\u00e4r {\\"x\\": 1}", "careful": "Prüfe, }alles." } },
    "other":  {"state":"DISABLED"  }
} }

"""


def test_flag_file_keeps_its_formatting(tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    path.write_bytes(ODD.encode())
    text = with_policy(path, {"brief": 4000, "careful": 6000})
    before, after = ODD.splitlines(keepends=True), text.splitlines(keepends=True)
    assert after[:3] == before[:3]
    assert after[-3:] == before[-3:]
    assert before[3].rstrip("\r\n}, ") in text
    assert json.loads(text)["flags"]["support-prompt"]["targeting"] == {
        "fractional": [["brief", 4000], ["careful", 6000]]
    }


def test_same_policy_again_changes_not_one_character(tmp_path: Path) -> None:
    path = write(tmp_path / "flags.json", DOCUMENT)
    once = with_policy(path, {"brief": 4000, "careful": 6000})
    path.write_text(once, encoding="utf-8")
    assert with_policy(path, {"brief": 4000, "careful": 6000}) == once


@given(
    st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=4),
    st.sampled_from([None, 1, 2, "\t"]),
    st.text(min_size=1, max_size=3),
)
def test_any_member_can_be_set_in_any_object_of_any_indentation(
    members: dict[str, Any], indent: int | str | None, name: str
) -> None:
    document = {"a": 1, "flags": {"key": members, "z": [1, {"q": "}"}]}}
    text = json.dumps(document, indent=indent)
    changed = with_members(text, ("flags", "key"), {name: {"fractional": [["x", 1]]}})
    members[name] = {"fractional": [["x", 1]]}
    assert json.loads(changed) == document


@given(
    st.dictionaries(
        st.text(max_size=4), st.integers() | st.text(max_size=4), min_size=1, max_size=4
    ),
    st.sampled_from([None, 1, 2, "\t"]),
    st.text(min_size=5, max_size=6),
)
def test_member_that_was_appended_can_be_removed_to_the_very_character(
    members: dict[str, Any], indent: int | str | None, name: str
) -> None:
    text = json.dumps({"a": 1, "flags": {"key": members, "z": []}}, indent=indent)
    path = ("flags", "key")
    assert without_member(with_members(text, path, {name: {"x": [1]}}), path, name) == text


NESTED = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(NESTED, NESTED, st.sampled_from([None, 1, "\t"]))
def test_any_value_can_be_changed_to_any_other_and_its_text_restored(
    old: Any, new: Any, indent: int | str | None
) -> None:
    text = json.dumps({"a": 1, "k": {"x": old, "y": [old]}}, indent=indent)
    changed = with_members(text, ("k",), {"x": new})
    assert json.loads(changed) == {"a": 1, "k": {"x": new, "y": [old]}}
    written = member_text(text, ("k",), "x")
    assert with_member_text(changed, ("k",), "x", written) == text


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_member_at_any_place_can_be_removed(name: str) -> None:
    members = {"a": 1, "b": {"x": "}"}, "c": [2]}
    changed = without_member(json.dumps({"k": members}, indent=2), ("k",), name)
    del members[name]
    assert json.loads(changed) == {"k": members}


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=12))
def test_integer_weights_add_up_and_are_near_the_probabilities(parts: list[float]) -> None:
    probabilities = {str(i): part / sum(parts) for i, part in enumerate(parts)}
    weights = flag_document.integer_weights(probabilities)
    assert sum(weights.values()) == flag_document.WHOLE
    for arm, share in probabilities.items():
        assert abs(weights[arm] - flag_document.WHOLE * share) < 1 + 1e-6


def test_stock_flagd_provider_serves_the_learned_fractions(tmp_path: Path) -> None:
    weights = {"brief": 2000, "careful": 8000}
    path = write(tmp_path / "flags.json", DOCUMENT)
    path.write_text(with_policy(path, weights), encoding="utf-8")
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(path))
    api.set_provider_and_wait(provider)
    try:
        client = api.get_client()
        answers = [
            client.get_string_details("support-prompt", "", EvaluationContext(f"ticket-{i}"))
            for i in range(1000)
        ]
    finally:
        api.shutdown()
    served = sum(answer.variant == "careful" for answer in answers) / len(answers)
    # Three binomial standard deviations of 1000 draws at 0.8 are 0.038.
    assert abs(served - 0.8) < 0.038
    assert answers[0].flag_metadata["lightning.propensity.careful"] == 0.8
    assert answers[0].flag_metadata["lightning.policy.version"] == "v1"


def test_staged_file_appears_only_when_the_block_ends_well(tmp_path: Path) -> None:
    path = write(tmp_path / "flags.json", {"flags": {}})
    with pytest.raises(RuntimeError), flag_file.replacing(path, json.dumps(DOCUMENT)):
        raise RuntimeError
    assert json.loads(path.read_text()) == {"flags": {}}
    with flag_file.replacing(path, json.dumps(DOCUMENT)):
        assert json.loads(path.read_text()) == {"flags": {}}
    assert json.loads(path.read_text(encoding="utf-8")) == DOCUMENT
    assert list(tmp_path.iterdir()) == [path]


def test_staged_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = write(tmp_path / "flags.json", {})
    path.chmod(0o644)
    with flag_file.replacing(path, json.dumps(DOCUMENT)):
        pass
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"flags\.json' is not a readable flagd flag file"),
        ("[]", r"has no flag 'support-prompt'\. Its flags: none\."),
        ('{"flags": {"a": {}, "b": {}}}', r"has no flag 'support-prompt'\. Its flags: a, b\."),
        (
            '{"flags": {"support-prompt": {"targeting": {"if": []}}}}',
            r"is targeted by 'if', which a learned policy would replace",
        ),
    ],
)
def test_flag_file_that_does_not_fit_is_an_error(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "flags.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        flag_file.read_flag_file(path, "support-prompt")


def test_missing_flag_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no flag file at '.*none\.json'\."):
        flag_file.read_flag_file(tmp_path / "none.json", "support-prompt")


def test_file_that_was_edited_since_it_was_read_is_not_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "flags.json", DOCUMENT)
    seen = flag_file.read_with_text(path, "support-prompt")
    path.write_text("{}")
    with (
        pytest.raises(flag_file.ChangedError, match="changed by another program"),
        flag_file.replacing(path, "new", seen),
    ):
        pytest.fail("it was compared before the block")
    assert path.read_text() == "{}"
    assert [file.name for file in tmp_path.iterdir()] == ["flags.json"]


def test_file_that_is_edited_during_the_record_is_not_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "flags.json", DOCUMENT)
    seen = flag_file.read_with_text(path, "support-prompt")
    with pytest.raises(flag_file.ChangedError), flag_file.replacing(path, "new", seen):
        path.write_text("{}")
    assert path.read_text() == "{}"


def test_value_on_one_line_stays_on_one_line() -> None:
    text = '{\n  "flag": {\n    "targeting": {"fractional": [["a", 1], ["b", 1]]}\n  }\n}\n'
    new = {"fractional": [["a", 30], ["b", 70]]}
    changed = with_members(text, ("flag",), {"targeting": new})
    assert changed == text.replace('["a", 1], ["b", 1]', '["a", 30], ["b", 70]')


def test_weights_are_written_one_arm_on_a_line() -> None:
    text = '{\n  "flag": {\n    "state": "ENABLED"\n  }\n}\n'
    new = {"fractional": [["a", 30], ["b]", 70]]}
    assert with_members(text, ("flag",), {"targeting": new}) == (
        '{\n  "flag": {\n    "state": "ENABLED",\n    "targeting": {\n      "fractional": [\n'
        '        ["a", 30],\n        ["b]", 70]\n      ]\n    }\n  }\n}\n'
    )


def test_of_two_flags_with_one_key_the_one_that_counts_is_changed() -> None:
    """JSON readers, flagd among them, take the last of several members with one name."""
    text = '{"flags": {"a": {"x": 1}, "a": {"x": 2}}}'
    changed = with_members(text, ("flags", "a"), {"x": 3})
    assert changed == '{"flags": {"a": {"x": 1}, "a": {"x": 3}}}'


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"targeting": {"fractional": [["brief", 1], ["carefull", 1]]}},
            "serves 'carefull'",
        ),
        ({"targeting": {"fractional": [[True, 1], [False, 1]]}}, "has [true, 1], but"),
        ({"targeting": {"fractional": [["brief", "x"]]}}, '\'fractional\' has ["brief", "x"], but'),
        ({"targeting": {"fractional": [["brief", 0.5]]}}, "a whole number of at least 0"),
        ({"targeting": {"fractional": [["brief", -1], ["careful", 2]]}}, 'has ["brief", -1], but'),
        ({"targeting": {"fractional": "brief"}}, 'has "brief", but needs pairs'),
        ({"targeting": {}, "defaultVariant": True}, "serves 'True', which is none of"),
        ({"variants": ["brief", "careful"]}, "The variants of flag 'support-prompt' in"),
    ],
)
def test_flag_whose_shares_cannot_be_those_of_its_variants_is_refused(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    document = copy.deepcopy(DOCUMENT)
    document["flags"]["support-prompt"] |= changes
    path = write(tmp_path / "flags.json", document)
    with pytest.raises(DataError, match=re.escape(told)):
        flag_file.read_flag_file(path, "support-prompt")


def test_variant_of_weight_0_may_be_gone(tmp_path: Path) -> None:
    document = copy.deepcopy(DOCUMENT)
    del document["flags"]["support-prompt"]["variants"]["old"]
    path = write(tmp_path / "flags.json", document)
    read = flag_file.read_flag_file(path, "support-prompt")
    shares = flag_document.live_shares(read, "support-prompt")
    assert shares == {"brief": 0.5, "careful": 0.5}
