"""Numbers become what JSON can hold."""

import json

import numpy as np
import pytest

from remuda.analysis.as_json import as_json, figures


def test_what_is_not_finite_becomes_none():
    found = as_json(np.array([[1.0, np.nan], [-np.inf, 2.5]]))
    assert json.dumps(found) == "[[1.0, null], [null, 2.5]]"
    assert (as_json(np.float64(3)), as_json(np.nan), as_json([])) == (3.0, None, [])


@pytest.mark.parametrize(
    ("value", "digits", "told"),
    [
        (0.0, 3, "0"),
        (-0.012345, 3, "-0.0123"),
        (99.4, 2, "99"),
        (99.6, 2, "100"),
        (160.0, 2, "160"),
        (-12345.6, 3, "-12,346"),
        (999.6, 3, "1,000"),
        (1e-7, 3, "1e-07"),
        (1.5e300, 2, "1.5e+300"),
        (float("nan"), 3, "nan"),
    ],
)
def test_large_numbers_are_told_without_powers_of_ten(value, digits, told):
    assert figures(value, digits) == told
