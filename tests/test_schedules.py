import dataclasses
import math
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bvfim.schedules import constant, geometric, harmonic, join, linear, power, require, require_count, value
from bvfim.status import MethodError

quick = settings(max_examples=100, deadline=None, derandomize=True)
positive = st.floats(0.01, 10)
simple = st.one_of(positive.map(constant), positive.map(harmonic), st.builds(geometric, positive, st.floats(0.5, 1.1)))


@pytest.mark.parametrize("k", [0, 1, 2, 7, 100])
def test_values_are_those_of_the_formulas(k):
    assert constant(0.3)(k) == 0.3
    assert harmonic(0.3)(k) == 0.3 / (k + 1)
    assert math.isclose(geometric(0.3, 1 / 1.01)(k), 0.3 / 1.01**k, rel_tol=1e-13)
    assert math.isclose(power(0.3, -1.0)(k), harmonic(0.3)(k), rel_tol=1e-13)
    assert math.isclose(power(0.3, 0.4)(k), 0.3 * (k + 1) ** 0.4, rel_tol=1e-13)
    assert math.isclose(linear(0.3, -0.5, 10)(k), max(0.3 - 0.08 * k, -0.5), rel_tol=1e-13)


@quick
@given(st.lists(simple, min_size=1, max_size=4), st.data())
def test_join_is_the_piecewise_function(pieces, data):
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=len(pieces) - 1, max_size=len(pieces) - 1))
    expected = []  # written out piece by piece
    for piece, length in zip(pieces, [*lengths, 6], strict=True):
        expected += [piece(i) for i in range(length)]
    boundaries = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    joined = join(pieces, boundaries)
    assert [joined(k) for k in range(len(expected))] == expected


def test_joins_can_be_joined_and_take_any_function():
    inner = join([constant(1.0), lambda k: 2.0 + k], [2])
    assert [join([constant(9.0), inner], [1])(k) for k in range(5)] == [9, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("count", "boundaries"),
    [(0, []), (1, [3]), (2, []), (2, [1, 2]), (2, [0]), (2, [-1]), (3, [2, 2]), (3, [3, 2])],
)
def test_join_refuses_boundaries_that_do_not_fit(count, boundaries):
    with pytest.raises(MethodError, match="join: "):
        join([constant(1.0)] * count, boundaries)


@pytest.mark.parametrize(
    "schedule",
    [
        constant(1.0),
        geometric(1.0, 0.5),
        harmonic(2.0),
        power(1.0, 0.3),
        linear(0.0, 2.0, 5),
        join([constant(1.0), harmonic(2.0)], [3]),
    ],
)
def test_schedules_compare_print_pickle_and_do_not_change(schedule):
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule
    assert eval(repr(schedule)) == schedule
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.value = 2.0


def test_value_takes_numbers_as_they_are_and_asks_schedules():
    assert value(0.5, 3, "lr") == 0.5
    assert isinstance(value(1, 3, "lr"), float)
    assert value(lambda k: k / 2, 3, "lr") == 1.5


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_value_refuses_a_schedule_that_leaves_the_positive_numbers_with_step_and_name(bad):
    schedule = join([constant(1.0), constant(bad)], [17])
    assert value(schedule, 16, "mu2") == 1.0
    with pytest.raises(MethodError, match=r"mu2.* at step 17\b"):
        value(schedule, 17, "mu2")


def test_a_geometric_schedule_stays_positive_however_long_a_run_is():
    assert value(geometric(1.0, 0.5), 2000, "mu1") > 0
    assert value(geometric(1.0, 1 / 1.01), 10**6, "mu1") > 0


class Owner(SimpleNamespace):
    pass


@pytest.mark.parametrize("bad", [True, False, "1", None, math.nan, math.inf, -math.inf, [1.0], 1j])
@pytest.mark.parametrize("limit", [{"at_least": 0}, {"above": 0}, {"at_least": -2.0}])
def test_require_refuses_what_is_not_a_finite_number(bad, limit):
    with pytest.raises(MethodError, match="Owner: lr must be a finite number"):
        require(Owner(lr=bad), "lr", **limit)


@pytest.mark.parametrize(
    ("number", "limit", "good"),
    [
        (0, {"at_least": 0}, True),
        (0.0, {"above": 0}, False),
        (1e-300, {"above": 0}, True),
        (-1e-300, {"at_least": 0}, False),
        (0.5, {"at_least": 0.5}, True),
        (0.5, {"above": 0.5}, False),
        (3, {"above": 2.5}, True),
        (constant(-1.0), {"above": 0}, True),
    ],
)
def test_require_keeps_its_bounds(number, limit, good):
    if good:
        require(Owner(lr=number), "lr", **limit)
        return
    with pytest.raises(MethodError, match=f"{'at least' if 'at_least' in limit else 'above'} .*not {number!r}"):
        require(Owner(lr=number), "lr", **limit)


@pytest.mark.parametrize("bad", [True, "3", 3.0, math.nan, None, 0, -1, constant(3)])
def test_require_count_refuses_what_is_not_a_whole_positive_number(bad):
    with pytest.raises(MethodError, match="Owner: steps must be a whole number of at least 1"):
        require_count(Owner(steps=bad), "steps")


def test_require_count_takes_counts_from_its_bound_on():
    require_count(Owner(steps=1), "steps")
    require_count(Owner(steps=0), "steps", at_least=0)
    with pytest.raises(MethodError, match="at least 2, not 1"):
        require_count(Owner(steps=1), "steps", at_least=2)
