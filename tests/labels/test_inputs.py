"""Rows as numbers: no column wipes out another, and tables of every type come through."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import bvfim
from bvfim.labels.inputs import numbers_of

SPREADS = np.array([1e-9, 1.0, 1e12])


def columns(offset=0.0):
    return offset + np.random.default_rng(0).normal(size=(200, 3)) * SPREADS


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame, sparse.csr_matrix])
def test_every_column_counts_beside_one_of_large_values(form):
    rows = form(columns())
    np.testing.assert_allclose(numbers_of(rows, standard=True).std(0), 3**-0.5, rtol=1e-6)


def test_a_date_in_nanoseconds_is_no_constant():
    when = pd.date_range("2026-01-01", periods=200, freq="min")
    rows = pd.DataFrame({"when": when, "local": when.tz_localize("Asia/Tokyo"), "size": columns()[:, 1]})
    np.testing.assert_allclose(numbers_of(rows, standard=True).std(0), 3**-0.5, rtol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.1, 1.7e18])
def test_a_constant_leaves_nothing_behind(form, standard, value):
    varied = columns()[:, 1:2]
    rows = form(np.hstack([varied, np.full_like(varied, value)]))
    found = numbers_of(rows, standard)
    assert (found[:, 1] == 0).all()
    assert found[:, 0].std() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["bool", "boolean", "Int64", "Float64", "int8", "float32"])
def test_numbers_of_every_type_stand_beside_floats(kind):
    values = np.arange(200) % 2
    frame = pd.DataFrame({"a": columns()[:, 1], "b": values, "sort": np.where(values, "x", "y")})
    expected = numbers_of(frame, standard=True)
    found = frame.astype({"b": kind})
    np.testing.assert_array_equal(numbers_of(found, standard=True), expected)


def test_columns_are_taken_by_their_names_and_words_may_be_mixed():
    frame = pd.DataFrame({3: [1.0, 2.0, 3.0], 0: [1, "a", 1]})
    found = numbers_of(frame, standard=True)
    assert found.dtype == np.float64
    assert found.shape == (3, 3)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, pd.DataFrame, lambda rows: rows.reshape(4, 1, 2)])
def test_a_value_that_overflows_is_told_with_its_place(form):
    rows = np.arange(8.0).reshape(4, 2)
    rows[2, 1] = -1e308
    with pytest.raises(bvfim.DataError, match="row 2, column 1: the value is too large"):
        bvfim.LabelCleaner().fit(form(rows), [0, 1, 0, 1])


@pytest.mark.parametrize("kind", ["boolean", "Int64", "Float64", "datetime64[ns]"])
def test_a_hole_in_any_type_is_told_with_its_place(kind):
    frame = pd.DataFrame({"a": [0.5, 1.0, 2.0, 3.0], "b": pd.Series([1, 0, None, 1]).astype("Int64").astype(kind)})
    with pytest.raises(bvfim.DataError, match="row 2, column 'b': the value is missing"):
        bvfim.LabelCleaner().fit(frame, [0, 1, 0, 1])
