"""Groups are those of sets that are merged one by one, whatever is asked in between."""

from hypothesis import example, given
from hypothesis import strategies as st

from otel_lightning.collector.derive.union_find import Groups

COUNT = 12
NUMBERS = st.integers(0, COUNT - 1)


@example(pairs=[(2, 3), (1, 2), (0, 1)], asked=[3])
@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS)), asked=st.lists(NUMBERS))
def test_groups_are_those_of_merged_sets(pairs: list[tuple[int, int]], asked: list[int]) -> None:
    groups = Groups(range(COUNT))
    merged = [{number} for number in range(COUNT)]
    for one, other in pairs:
        groups.join(one, other)
        joined = [some for some in merged if one in some or other in some]
        merged = [some for some in merged if some not in joined] + [set().union(*joined)]
    for number in asked:  # finding a root shortens paths, and must change no group
        groups.root(number)
    assert list(groups) == list(range(COUNT))
    for some in merged:
        assert {groups.root(number) for number in some} == {min(some)}
