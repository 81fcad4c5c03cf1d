"""Intervals have as many digits as their width needs."""

import pytest

from remuda.ui.terminal.numbers import between, decimal, in_width, number, to_width


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (160.0, 170.0, "160 to 170"),
        (152.3, 157.9, "152.3 to 157.9"),
        (-0.1234, 0.1234, "-0.12 to 0.12"),
        (0.9971, 0.9984, "0.9971 to 0.9984"),
        (1234567.0, 1234599.0, "1.234567e+06 to 1.234599e+06"),
        (1e-9, 3e-9, "1.0e-09 to 3.0e-09"),
        (2.0, 2.0, "2.00 to 2.00"),
        (float("nan"), float("nan"), "–"),
    ],
)
def test_intervals_have_the_digits_of_their_width(low, high, told):
    found = between(low, high)
    if "e" in told:
        assert [float(w) for w in found.split(" to ")] == [float(w) for w in told.split(" to ")]
    else:
        assert found == told


def test_a_value_has_the_digits_of_its_interval():
    assert to_width((1234.5678, 1230.1, 1239.2), 9.1) == ("1,234.6", "1,230.1", "1,239.2")


def test_large_numbers_have_an_exponent():
    assert (number(-9_999_999.0), number(-1e30)) == ("-9,999,999", "-1e+30")
    assert (decimal(1234.56, 1), decimal(1.234e29, 1)) == ("1234.6", "1.23e+29")


@pytest.mark.parametrize("value", [0.0, 0.0123, -12.34, 999_999.0, -9_999_999.0, -1.234e30, None])
def test_a_number_fits_into_its_column(value):
    assert len(in_width(value, 7)) <= 7
