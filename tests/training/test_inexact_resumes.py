"""A resume that cannot continue its episodes says why, in one line that the result repeats."""

import pytest

from remuda.config import load_config, overlay
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.process

BASE = {
    "schedule": "sequential",
    "env": {"num_envs": 2},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 16}},
    "run": {"turns": 51, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
}
ANEW = "continues with new episodes, since "
PLAIN = {"game": "treasure_hunt"}
CASES = {
    "exact": (PLAIN, {}, None),
    "gymnasium": ({"game": "gymnasium:CartPole-v1"}, {}, "environments of gymnasium:CartPole-v1"),
    "pettingzoo": ({"game": "pettingzoo:classic/rps_v2"}, {}, "cannot be saved in mid-episode"),
    "population": (
        {
            "game": "pettingzoo:classic/rps_v2",
            "population": {"policies": 2, "matchmaker": "self_play"},
        },
        {},
        "cannot be saved in mid-episode",
    ),
    "workers before": (
        PLAIN | {"env": {"num_envs": 2, "workers": 2}},
        {"env": {"workers": 1}},
        "worker processes cannot save",
    ),
    "workers after": (PLAIN, {"env": {"workers": 2}}, "worker processes cannot restore"),
    "without experience": (PLAIN, {"checkpoint": {"replay": False}}, "checkpoint.replay"),
    "saved without": (
        PLAIN | {"checkpoint": {"replay": False}},
        {"checkpoint": {"replay": None}},
        "checkpoint.replay",
    ),
    "async": (PLAIN | {"schedule": "async"}, {"schedule": "sequential"}, "checkpoint.replay"),
    "async with experience": (
        PLAIN | {"schedule": "async", "checkpoint": {"replay": True}},
        {"schedule": "sequential"},
        "the schedule was async",
    ),
    "still async": (PLAIN | {"schedule": "async"}, {}, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_resume_that_begins_new_episodes_says_why(case, tmp_path):
    if "gym" in case or "petting" in case or case == "population":
        pytest.importorskip("gymnasium" if "gym" in case else "pettingzoo")
    tree, change, why = CASES[case]
    tree = overlay(overlay(BASE, tree), {"run": {"directory": tmp_path / "run"}})
    train(load_config(tree), PlainView())
    lines, view = [], PlainView()
    view.say = lines.append
    changed = overlay(overlay(tree, change), {"run": {"turns": 101}})
    result = train(load_config(changed), view, resume=True)
    said = [line for line in lines if ANEW in line]
    noted = [line for line in result.notes if ANEW in line]
    assert said == noted
    assert len(said) == (why is not None)
    assert why is None or (why in said[0] and "\n" not in said[0])
