"""Where less was trained than asked for, the end says so, and why."""

from types import SimpleNamespace

import pytest

from remuda.config import load_config
from remuda.coordinator.shortfall import missed_ratios


def record(**policies):
    return SimpleNamespace(
        policies={
            name: SimpleNamespace(replay_ratio=ratio, busy=busy, halted=False)
            for name, (ratio, busy) in policies.items()
        }
    )


def test_what_was_reached_is_not_worth_a_word():
    assert missed_ratios(load_config({}), record(a=(0.63, 1.0), b=(None, 0.0))) == []


@pytest.mark.parametrize(("busy", "why"), [(0.5, "no time left"), (0.1, "no processor")])
def test_a_missed_ratio_is_told_with_its_cause(busy, why):
    (words,) = missed_ratios(load_config({}), record(a=(0.056, busy), b=(0.3, busy), c=(0.64, 0)))
    assert words.startswith("2 policies, a least of all, trained on 0.056 samples a step")
    assert "asks for 0.64" in words
    assert why in words


def test_rollouts_have_no_ratio():
    config = load_config({"policy": {"algorithm": "ppo"}})
    assert missed_ratios(config, record(a=(0.1, 1.0))) == []
