"""Results as JSON."""

import json

from remuda.ui.cli.commands.options import PrintOptions


def test_numbers_that_are_not_finite_are_null(capsys):
    """Python would print NaN, which no other reader of JSON takes."""
    found = {"mean": float("nan"), "each": [1.0, float("inf")], "name": "a"}
    PrintOptions(format="json").show(lambda: found, lambda: None)
    plain = json.loads(capsys.readouterr().out, parse_constant=lambda name: name)
    assert plain == {"mean": None, "each": [1.0, None], "name": "a"}
