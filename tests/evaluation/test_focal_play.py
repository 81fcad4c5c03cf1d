"""Play of a run's policies among others: who sits where, and what a seat earns."""

import json

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import remuda
from refusals import refuses
from remuda.errors import UsageError
from remuda.evaluation.tournaments.focal import FocalSchedule, placements, returns_with
from remuda.runs.run_directory import RunDirectory
from remuda.ui.analysis.focal import evaluate_among
from remuda.ui.cli.main import run as cli

AGENTS = [f"agent_{i}" for i in range(4)]


class Commons(ParallelEnv):
    """One turn: whoever gives (1) pays 1, and everybody gets 0.5 for each that gives."""

    metadata = {"name": "commons"}  # noqa: RUF012

    def __init__(self, late: bool = False):
        self.possible_agents, self.late = AGENTS, late

    def observation_space(self, agent):
        return Box(0, 1, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(AGENTS[1:] if self.late else AGENTS)
        return {a: np.zeros(2, np.float32) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions):
        given, agents = sum(actions.values()), self.agents
        rewards = {a: 0.5 * given - float(actions[a]) for a in agents}
        self.agents = []
        over = dict.fromkeys(agents, True)
        shown = {a: np.zeros(2, np.float32) for a in agents}
        return shown, rewards, over, dict.fromkeys(agents, False), {a: {} for a in agents}


def gives(env, agent, observations, rng):
    return np.ones(len(observations), np.int64)


def takes(env, agent, observations, rng):
    return np.zeros(len(observations), np.int64)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose policies have learned to take."""
    directory = tmp_path_factory.mktemp("focal") / "run"
    remuda.train(
        Commons,
        policy={"algorithm": "ppo", "network": {"hidden": [8]}, "ppo": {"rollout_length": 16}},
        run={"turns": 600, "directory": directory, "evaluate_episodes": 0},
        schedule="sequential",
        view="quiet",
    )
    return remuda.load(directory)


def test_a_schelling_diagram_is_that_of_the_game(run):
    """With k of 4 seats that take, a giver earns 0.5 (4 - k) - 1, and a taker 0.5 (4 - k)."""
    own = run.evaluate(40).returns.mean(0)
    assert np.allclose(own, 0.0), "the policies did not learn to take"
    found = run.evaluate_among(f"{__name__}:gives", range(5), episodes=24)
    for each in found.returns:
        given = 0.5 * (4 - each.focal_seats)
        assert each.episodes == 24
        if each.focal_seats:
            assert (each.focal, each.focal_error) == (given, 0.0)
        if each.focal_seats < 4:
            assert (each.background, each.background_error) == (given - 1.0, 0.0)
    assert np.isnan(found.returns[0].focal)
    assert np.isnan(found.returns[4].background)
    assert found.returns[2].all_seats == pytest.approx(0.5)


def test_all_placements_take_turns(run):
    files = RunDirectory.open(run.path)
    evaluate_among(files, "random", (1,), 2)
    schedule = schedule_of(run, (1, 2), 12)
    for count, ways in ((1, 4), (2, 6)):
        numbers = schedule.matches_of(count, 12)
        seated = schedule.entrants_of(numbers) == 0
        assert (seated.sum(1) == count).all()
        assert len(np.unique(seated, axis=0)) == ways
        assert (seated.sum(0) == 12 * count / 4).all()


def schedule_of(run, counts, episodes):
    from remuda.evaluation.focal_play import PlayedPolicy, PlayedRun, setup_of_focal
    from remuda.evaluation.tournaments.game_schedule import schedule_of as made
    from remuda.runs.saved_weights import load_run

    played = PlayedRun("run", *load_run(RunDirectory.open(run.path)))
    background = PlayedPolicy("random", "random", played.env)
    found = made(setup_of_focal(played, background, counts), episodes)
    assert isinstance(found, FocalSchedule)
    return found


def test_seats_that_took_no_part_do_not_count(run):
    schedule = schedule_of(run, (1,), 4)
    numbers = schedule.matches_of(1, 4)
    returns = np.full((4, 4), 2.0, np.float32)
    returns[schedule.entrants_of(numbers) == 0] = 10.0
    returns[0] = np.nan
    returns[1, schedule.entrants_of(numbers)[1] == 0] = np.nan
    found = returns_with(schedule, 1, numbers, returns)
    assert (found.focal, found.background) == (10.0, 2.0)
    assert found.all_seats == pytest.approx((2.0 + 4.0 + 4.0) / 3)


def test_another_run_plays_the_other_seats(run, tmp_path):
    other = tmp_path / "other"
    remuda.train(
        Commons,
        policy={"algorithm": "dqn", "network": {"hidden": [8]}},
        run={"turns": 20, "directory": other, "evaluate_episodes": 0},
        schedule="sequential",
        view="quiet",
    )
    found = run.evaluate_among(other, 2, episodes=12)
    assert (found.focal, found.background, found.seats) == ("run", "other", 4)
    assert found.returns[0].background <= found.returns[0].focal


@pytest.mark.parametrize(
    ("background", "focal"), [("nobody", 1), ("random", 5), ("random", -1), ("random", ())]
)
def test_impossible_focal_play_is_refused(run, background, focal):
    with refuses(UsageError):
        run.evaluate_among(background, focal)


def test_runs_of_other_agents_are_refused(run, tmp_path):
    other = tmp_path / "kuhn"
    remuda.train(
        "kuhn_poker",
        run={"turns": 20, "directory": other, "evaluate_episodes": 0},
        schedule="sequential",
        view="quiet",
    )
    with refuses(UsageError, "agent_3"):
        run.evaluate_among(other)


def test_the_command_draws_a_picture(run, tmp_path, capsys):
    picture = tmp_path / "schelling.png"
    words = ["evaluate", str(run.path), "--background", "random", "--focal", "0", "2", "4"]
    assert cli([*words, "--episodes", "8", "--out", str(picture)]) == 0
    assert "0 of 4" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert cli([*words, "--episodes", "8", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"]) == 3
    assert cli(["evaluate", str(run.path), "--focal", "2"]) != 0
    assert "--background" in capsys.readouterr().err


def test_seats_that_the_background_cannot_take_are_focal():
    """Red before: of many placements, 500 were drawn first, and mostly none of them fitted."""
    focal, background, rng = set(range(16)), set(range(10)), np.random.default_rng(0)
    found = placements(8, focal, background, rng)
    assert len(set(found)) == 45
    assert all(set(range(10, 16)) <= seats for seats in found)
    assert placements(5, focal, background, rng) == []
    many = placements(8, focal, focal, rng)
    assert len(set(many)) == 500
    assert {len(seats) for seats in many} == {8}
