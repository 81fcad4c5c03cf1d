"""Which game policies of several runs play, and what is told of runs that had another."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from remuda.config import load_config
from remuda.training.saved.games import RunGame, other_games


def games(configs):
    return {str(run): RunGame(config) for run, config in configs.items()}


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"options": {"num_agents": 5}}, ""),
        (
            {"options": {"num_agents": 4}},
            "other learned with env.options.num_agents 4; all play tag",
        ),
        ({"options": {"num_agents": 4, "width": 9}}, "num_agents 4, env.options.width 9; all"),
    ],
)
def test_only_what_makes_another_game_is_told(env, said):
    """Red before: a default that one run wrote out was told as another game."""
    configs = {Path("one"): {}, Path("other"): env}
    configs = {run: load_config({"game": "tag", "env": tree}) for run, tree in configs.items()}
    configs = games(configs)
    notes = other_games(configs, {})
    assert len(notes) == bool(said)
    assert said in "".join(notes)
    assert not other_games(configs, env["options"])


def test_who_had_a_seat_for_good_is_told_of_later_runs():
    """Red before: the first run's scripted seats were taken, whatever others had learned with."""
    trees = {
        "one": {"agent_1": "random"},
        "other": {"agent_1": "hunt", "agent_2": "random"},
        "third": {},
    }
    configs = {
        Path(run): load_config({"game": "tag", "env": {"scripted": seats}})
        for run, seats in trees.items()
    }
    configs = games(configs)
    other, third = other_games(configs, {})
    assert other.startswith("other learned with env.scripted.agent_1 hunt, env.scripted.agent_2 ")
    assert third.startswith("third learned with env.scripted.agent_1 nobody; all play tag as in")
    (other,) = other_games(configs, {}, ["agent_1"])
    assert other.startswith("other learned with env.scripted.agent_2 random; all play tag as in")
    assert not other_games(configs, {}, ["agent_1", "agent_2"])
    assert not other_games(configs, {}, None), "whoever has all seats"


def test_what_is_asked_of_an_option_leaves_the_rest_of_it_to_tell():
    """Red before: nothing was told of the other keys."""
    trees = {"one": {"a": 1, "b": 2}, "other": {"a": 3, "b": 4}}
    configs = {
        Path(run): load_config({"game": "tag", "env": {"options": {"parts": parts}}})
        for run, parts in trees.items()
    }
    (note,) = other_games(games(configs), {"parts": {"a": 9}})
    assert "other learned with env.options.parts.b 4; all play tag" in note


def test_what_a_game_takes_by_itself_in_a_nested_option_is_no_other_game(monkeypatch):
    """Red before: of an option that was given in part, the rest was taken to be missing."""
    usual = {"parts": {"a": 1, "b": 2}}
    made = SimpleNamespace(in_force=usual)
    monkeypatch.setattr("remuda.training.saved.games.EnvSpec.of", lambda *_: made)
    trees = {"one": {"a": 9}, "other": {"a": 9, "b": 2}, "third": {"a": 9, "b": 3}}
    configs = {
        Path(run): load_config({"game": "tag", "env": {"options": {"parts": parts}}})
        for run, parts in trees.items()
    }
    (note,) = other_games(games(configs), {})
    assert note.startswith("third learned with env.options.parts.b 3; all play tag")


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"game": "nowhere.game:Thing", "env": {"options": {"x": 1}}},
            "with nowhere.game:Thing; all",
        ),
        (
            {"game": "tag", "env": {"options": {"bogus": 4}}},
            "learned with env.options.bogus 4; all",
        ),
        (
            {"game": "tag", "env": {"options": {"bogus": 4, "num_agents": 5}}},
            "learned with env.options.bogus 4, env.options.num_agents 5; all",
        ),
    ],
)
def test_a_game_that_cannot_be_made_any_more_is_told_too(tree, said):
    """Red before: the tournament was refused, though only the first run's game is played."""
    configs = {Path("one"): load_config({"game": "tag"}), Path("other"): load_config(tree)}
    assert said in "".join(other_games(games(configs), {}))
