"""Numbers become what JSON can hold."""

import json

import numpy as np

from remuda.analysis.plain import plain


def test_what_is_not_finite_becomes_none():
    found = plain(np.array([[1.0, np.nan], [-np.inf, 2.5]]))
    assert json.dumps(found) == "[[1.0, null], [null, 2.5]]"
    assert (plain(np.float64(3)), plain(np.nan), plain([])) == (3.0, None, [])
