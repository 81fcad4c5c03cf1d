"""Episodes of OpenSpiel's games, written as it numbers their moves."""

import json

import numpy as np
import pytest

import remuda
from remuda.ui.cli.main import run

pyspiel = pytest.importorskip("pyspiel")

SHORT = {
    "schedule": "sequential",
    "env": {"num_envs": 4},
    "run": {"turns": 40, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
}


def replayed(game, history):
    """The state that a line's moves lead to."""
    state = pyspiel.load_game(game).new_initial_state()
    left = list(history)
    while left:
        if state.is_simultaneous_node():
            together, left = left[: state.num_players()], left[state.num_players() :]
            state.apply_actions(together)
        else:
            state.apply_action(left.pop(0))
    return state


@pytest.mark.slow_cases("goofspiel(num_cards=3,imp_info=True)", "tic_tac_toe")
@pytest.mark.parametrize(
    "game", ["leduc_poker", "tic_tac_toe", "goofspiel(num_cards=3,imp_info=True)"]
)
def test_each_line_replays_to_its_returns(tmp_path, game):
    directory, file = tmp_path / "run", tmp_path / "games.jsonl"
    own = {"run": {**SHORT["run"], "directory": str(directory)}}
    remuda.train(f"open_spiel:{game}", **{**SHORT, **own})
    assert run(["evaluate", str(directory), "--episodes", "7", "--histories", str(file)]) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 7
    for line in lines:
        state = replayed(line["game"], line["history"])
        assert state.is_terminal()
        assert list(line["returns"].values()) == pytest.approx(state.returns())
    found = remuda.load(directory).evaluate(7, seed=0)
    assert [list(history) for history in found.histories] == [line["history"] for line in lines]


def test_other_games_have_none(tmp_path, capsys):
    directory, file = tmp_path / "run", tmp_path / "games.jsonl"
    own = {"run": {**SHORT["run"], "directory": str(directory)}}
    remuda.train("matching_pennies", **{**SHORT, **own})
    assert run(["evaluate", str(directory), "--histories", str(file)]) != 0
    assert "matching_pennies is not an OpenSpiel game" in capsys.readouterr().err
    assert not file.exists()
    assert remuda.load(directory).evaluate(3).histories == ()


def test_metrics_stand_beside_the_returns_of_their_episode(tmp_path):
    """Copies end their episodes at unlike times; rows of both must be of the same episode."""
    directory = tmp_path / "run"
    own = {
        "env": {"num_envs": 4, "episode_metrics": {"length": "last"}},
        "run": {**SHORT["run"], "directory": str(directory)},
    }
    remuda.train("telling_games:Unlike", **{**SHORT, **own})
    found = remuda.load(directory).evaluate(12)
    assert len(set(found.returns[:, 0])) > 3
    np.testing.assert_allclose(found.metric("length"), found.returns[:, 0])
