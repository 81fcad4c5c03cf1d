"""Seats that are taken for good: nobody of the entrants sits there, and nothing there counts."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import remuda
from assembled import spec_of
from refusals import refuses
from remuda.analysis.payoffs.from_ledger import read_payoffs
from remuda.analysis.payoffs.sums import add_up
from remuda.config import load_config
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, UsageError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import margin, play
from remuda.evaluation.tournaments.entrants import setup_of_entrants
from remuda.evaluation.tournaments.until import play_until
from remuda.types import AgentSpec, TurnResult
from remuda.ui.analysis.tournament_setup import set_up
from remuda.ui.cli.main import run
from tournament_games import always

PAID = "evaluation.tournaments.test_taken_seats:Paid"
KUHN = "kuhn_poker"


class Paid(VectorEnv):
    """One turn, and three agents: the first sees and does something else, and is paid a hundred.

    Each of the others is paid what it chose, and a tenth of what the first one did.
    """

    FREE = 1

    def __init__(self, num_envs=1):
        self.num_envs = num_envs
        wide, narrow = Box(0, 1, (2,), np.float32), Box(0, 1, (1,), np.float32)
        self.agents = (
            AgentSpec("dealer", wide, Discrete(5)),
            *(AgentSpec(f"guest_{i}", narrow, Discrete(3)) for i in range(2)),
        )
        self.turn_groups = ((0, 1, 2),)
        shape = (num_envs, 3)
        self._rewards = np.zeros(shape, np.float32)
        self._over = np.zeros(shape, np.bool_)
        self.active = np.zeros(shape, np.bool_)
        self._chosen = np.zeros(shape, np.float32)

    def reset(self, seeds, mask):
        self.active[mask] = True

    def begin_turn(self):
        self._rewards[:], self._over[:] = 0, False

    def observe(self, agent, out):
        out[:] = 0

    def act(self, agent, actions):
        self._chosen[:, agent] = actions

    def end_turn(self):
        self._rewards[:] = self._chosen + 0.1 * self._chosen[:, :1]
        self._rewards[:, 0] = 100
        self._over[:], self.active[:] = True, False
        return TurnResult(self._rewards, self._over, np.zeros_like(self._over))


def four(env, agent, seen, rng):
    """Chooses the last."""
    return np.full(env.num_envs, 4)


FOUR = "evaluation.tournaments.test_taken_seats:four"
TAKEN = {"dealer": FOUR}
PPO = {"algorithm": "ppo", "network": {"hidden": [8]}}


def guests():
    return {f"takes {k}": always(k, PAID, 1) for k in range(3)}


@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("processes", [1, 2])
def test_no_entrant_sits_there_and_nothing_there_counts(processes, tmp_path):
    setup = setup_of_entrants(PAID, {}, guests(), 1, taken=TAKEN)
    found = play(setup, 6, tmp_path / "t", processes=processes)
    assert found.means == pytest.approx(np.tile([[0.4], [1.4], [2.4]], (1, 3)))
    assert found.scripted == TAKEN
    payoffs = read_payoffs(tmp_path / "t" / "ledger.bin", keep=lambda ref: not ref.is_scripted)
    assert payoffs.names == ("takes 0", "takes 1", "takes 2")
    assert payoffs.matrix[2, 0] == pytest.approx(2.4)
    assert payoffs.matrix[0, 2] == pytest.approx(0.4)


@pytest.mark.slow
def test_who_takes_a_seat_draws_by_the_match():
    """So that it is the same whichever process plays it."""
    setup = setup_of_entrants(PAID, {}, guests(), 1, taken={"dealer": "random"})
    one, two = (play(setup, 40, processes=count) for count in (1, 2))
    assert np.array_equal(one.means, two.means)
    assert len(np.unique(one.means)) > 3


def test_it_goes_on_as_it_was_begun_and_not_otherwise(tmp_path):
    setup = setup_of_entrants(PAID, {}, guests(), 1, taken=TAKEN)
    play(setup, 2, tmp_path / "t")
    found = play(setup, 6, tmp_path / "t")
    assert found.matches.sum() == play(setup, 6).matches.sum()
    others = setup_of_entrants(PAID, {}, guests(), 1, taken={"dealer": "random"})
    with refuses(UsageError):
        play(others, 6, tmp_path / "t")
    assert setup.digest() != others.digest()


def test_until_it_is_sure(tmp_path):
    setup = setup_of_entrants(PAID, {}, guests(), 1, taken=TAKEN)
    found = play_until(setup, "rank of the top 3 is 95% sure", tmp_path / "t", max_matches=3000)
    assert found.until.reached
    assert found.until.words == "takes 2 before takes 1 before takes 0"
    taken = TAKEN | {"guest_0": "random"}
    with refuses(UsageError):
        play_until(
            setup_of_entrants(PAID, {}, guests(), taken=taken),
            "the best is 95% sure",
            max_matches=3000,
        )


def test_what_cannot_be_taken_is_told():
    with refuses(UsageError):
        setup_of_entrants(PAID, {}, guests(), taken={"host": "random"})
    everyone = {"agent_0": "random", "agent_1": "random"}
    with refuses(UsageError):
        setup_of_entrants(KUHN, {}, {"a": "random"}, taken=everyone)
    with refuses(ConfigError):
        setup_of_entrants(KUHN, {}, {"a": "random"}, taken={"agent_0": "bluffer"})
    with refuses(UsageError):
        setup_of_entrants(PAID, {}, guests())


def test_one_seat_that_is_not_taken():
    """No two meet, and what each earns by itself is known all the same."""
    taken = TAKEN | {"guest_0": "random"}
    found = play(setup_of_entrants(PAID, {}, guests(), taken=taken), 4)
    assert found.means == pytest.approx(np.tile([[0.4], [1.4], [2.4]], (1, 3)))


class Camps(Paid):
    """The dealer is of one team, both guests are of another."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        teams = ("house", "town", "town")
        self.agents = tuple(
            replace(agent, team=team) for agent, team in zip(self.agents, teams, strict=True)
        )


@pytest.mark.slow
def test_teams_are_those_of_the_seats_that_are_left(tmp_path, capsys):
    """Both guests are of one team, and each plays for itself, as where there is one team alone."""
    camps = "evaluation.tournaments.test_taken_seats:Camps"
    entrants = {f"takes {k}": always(k, camps, 1) for k in range(3)}
    setup = setup_of_entrants(camps, {}, entrants, 1, taken=TAKEN)
    found = play_until(setup, "rank of the top 3 is 95% sure", tmp_path / "t", max_matches=3000)
    assert found.until.reached
    assert run(["analyse", str(tmp_path / "t"), "--json"]) == 0
    assert FOUR not in capsys.readouterr().out


def test_sums_of_matches_are_as_if_taken_seats_were_not_there():
    rng = np.random.default_rng(0)
    places = rng.integers(0, 4, (200, 5))
    returns = rng.normal(size=(200, 5))
    for sides, dealt in (([0, -1, 1, 2, -1], [0, 2, 3]), ([-1, 0, 0, 1, 1], [1, 2, 3, 4])):
        for symmetric in (True, False):
            whole, part = np.zeros((2, 8, 4, 4))
            sides = np.array(sides)
            add_up(places, returns, sides, symmetric, False, whole)
            own = np.ascontiguousarray(places[:, dealt]), np.ascontiguousarray(returns[:, dealt])
            add_up(*own, sides[dealt], symmetric, False, part)
            assert part[0].any()
            assert np.array_equal(whole, part)


def test_a_challenge_is_won_on_the_seats_that_are_left():
    """With a policy for each agent: what the taken seat earns is no merit of who challenges."""
    config = load_config({"game": PAID, "policy": PPO, "env": {"scripted": TAKEN}})
    dealer = always(0, PAID, 0).snapshot
    one, two = (
        {"dealer": dealer} | {f"guest_{i}": always(k, PAID, 1 + i).snapshot for i in range(2)}
        for k in (0, 2)
    )
    assert margin(spec_of(config), one, two, 4, 0, Limits()) == pytest.approx(-2.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two guests that learned beside a dealer who is written by hand."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    remuda.train(
        PAID,
        schedule="sequential",
        policy={"algorithm": "ppo", "ppo": {"rollout_length": 16}},
        env={"num_envs": 8, "scripted": TAKEN},
        run={"turns": 4000, "evaluate_episodes": 0, "directory": str(directory), "live": False},
        checkpoint={"evaluate_episodes": 0},
    )
    return directory


@pytest.mark.slow
def test_a_runs_tournament_has_its_seats_taken(trained, capsys, tmp_path):
    words = ["tournament", f"{trained}:all", "--episodes", "4", "--sampled", "true"]
    assert run([*words, "--directory", str(tmp_path / "t"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scripted"] == TAKEN
    assert found["entrants"] == ["guest_0", "guest_1"]
    assert np.max(found["means"]) <= 2.4 + 1e-6
    assert run(["analyse", str(tmp_path / "t"), "--json"]) == 0
    assert FOUR not in capsys.readouterr().out
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--episodes", "6"]) == 0
    assert f"dealer is {FOUR} in every match" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_nothing_is_said_of_seats_that_the_user_gave(trained, tmp_path):
    """As another run left the dealer's to nobody."""
    remuda.train(
        PAID,
        schedule="sequential",
        policy={"algorithm": "ppo"},
        run={"turns": 20, "evaluate_episodes": 0, "directory": str(tmp_path / "plain")},
        checkpoint={"evaluate_episodes": 0},
    )
    words = [f"{trained}:guest_0", f"{tmp_path / 'plain'}:guest_0"]
    (note,) = set_up(words, "", {}).notes
    assert note.startswith(f"{tmp_path / 'plain'} learned with env.scripted.dealer nobody; all pl")
    found = set_up(words, "", {}, TAKEN)
    assert (found.notes, found.taken) == ((), TAKEN)


def test_a_policy_whose_seat_is_taken_does_not_play(trained, capsys):
    assert run(["tournament", f"{trained}:dealer", f"{trained}:guest_0"]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "dealer has learned nothing: in " in told
    assert f"{FOUR} plays the seat of dealer (env.scripted)" in told


def test_another_may_take_it(trained, capsys, tmp_path):
    words = ["tournament", f"{trained}:guest_0", "random", "--episodes", "2", "--json"]
    words += ["--directory", str(tmp_path / "t")]
    assert run([*words, "--scripted.dealer", "random"]) == 0
    assert json.loads(capsys.readouterr().out)["scripted"] == {"dealer": "random"}


def test_checkpoints_play_the_other_seats(trained, capsys, tmp_path):
    words = ["tournament", str(trained), "--episodes", "4", "--sampled", "true"]
    assert run([*words, "--directory", str(tmp_path / "t"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["entrants"]) >= 2
    assert np.max(found["means"]) <= 2.4 + 1e-6
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--episodes", "6"]) == 0
    capsys.readouterr()
    assert run([*words, "--scripted.dealer", "random"]) == 2
    assert "--scripted works with several entrants only" in capsys.readouterr().err


@pytest.mark.parametrize(
    "scripted",
    [
        {"dealer": None},
        {"dealer": 3},
        "dealer",
    ],
)
def test_who_cannot_take_a_seat_is_told_in_python(scripted):
    with refuses(UsageError):
        remuda.tournament(["random", "random"], game=PAID, scripted=scripted)


def test_a_function_may_take_a_seat(trained):
    opened = remuda.load(trained)
    found = remuda.tournament(
        [opened["guest_0"], opened["guest_1"]], game=PAID, scripted={"dealer": four}, episodes=2
    )
    assert np.max(found.means) <= 2.4 + 1e-6


def test_from_python(trained):
    opened = remuda.load(trained)
    found = remuda.tournament(
        [opened["guest_0"], "random"], game=PAID, scripted=TAKEN, episodes=4, sampled=True
    )
    assert found.scripted == TAKEN
    assert np.max(found.means) <= 2.4 + 1e-6


def test_what_is_no_action_is_told():
    entrants = {"one": "hand_written:none_there_is", "two": "random"}
    with refuses(ConfigError):
        play(setup_of_entrants(KUHN, {}, entrants), 1)
