"""Tournaments as they are played: against known outcomes, and against pairs played one by one."""

from dataclasses import replace

import numpy as np
import pytest

from assembled import spec_of
from played_tournaments import play_across, play_tournament
from remuda.config import load_config
from remuda.envs.registry import GAMES, make_env
from remuda.evaluation.evaluate import play_episodes, seated_actor
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import play
from remuda.evaluation.tournaments.entrants import setup_of_entrants, setup_of_snapshots
from remuda.policies.spec import first_weights
from remuda.population.ledger.ledger import read_records
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.system.rng import torch_rng
from remuda.types import TurnResult
from tournament_games import FirstSeat, always, untrained

PULL, LONG = "tournament_games:Pull", "tournament_games:LongLoses"


def test_a_game_of_teams():
    entrants = {str(action): always(action, PULL) for action in (0, 1)}
    found = play_across(PULL, {}, entrants, 5)
    assert found.means.tolist() == [[0, -1], [1, 0]]
    assert (found.errors == 0).all()
    assert found.matches.tolist() == [[5, 20], [20, 5]]


def test_roles_that_are_not_alike():
    """Who always bets wins the pot from who always passes, on both seats of Kuhn poker."""
    game = "kuhn_poker"
    entrants = {"pass": always(1, game), "bet": always(2, game), "random": "random"}
    found = play_across(game, {}, entrants, 1000, seed=3)
    assert found.means[:2, :2].tolist() == [[0, -1], [1, 0]]
    assert (found.errors[:2, :2] == 0)[[0, 1], [1, 0]].all()
    assert found.errors[1, 2] > 0
    # A first bet is called half of the time, which is even; else it wins 1. The second bets after
    # half of the first moves, and wins 1 from half of these.
    assert abs(found.means[1, 2] - (1 / 2 + 1 / 4) / 2) < 4.5 * found.errors[1, 2]
    # Who passes loses 1 where the other bets, half of the time; else the higher card wins.
    assert abs(found.means[0, 2] + 1 / 2) < 4.5 * found.errors[0, 2]
    assert found.errors[:2, 2].max() < 0.05


def pair_by_pair(game, players, sampled=False, episodes=1, seed=0):
    """The mean return of each among each, [N, N], from one evaluation for each pair and seat."""
    means = np.zeros((len(players), len(players)))
    for row, one in enumerate(players):
        for column, other in enumerate(players):
            found = []
            for seat in range(2):
                seated = [one, other] if seat == 0 else [other, one]

                def make_actor(copies, seated=seated):
                    env = make_env(game, copies)
                    specs, snapshots = [], {}
                    for agent, who in zip(env.agents, seated, strict=True):
                        specs.append(replace(who.spec, name=agent.name))
                        rate = who.spec.config.last_epsilon if sampled else 0.0
                        snapshots[agent.name] = replace(who.snapshot, epsilon=rate)
                    return seated_actor(env, tuple(specs), snapshots, seed)

                played = play_episodes(make_actor, (), episodes, min(episodes, 100), Limits())
                found.append(played.returns[:, seat].mean())
            means[row, column] = np.mean(found)
    return means


def layouts(game):
    """Policies of unlike algorithms, networks, recurrent_states and numbers of frames."""
    return [
        untrained(game, 1),
        untrained(game, 2),
        untrained(game, 3, network={"hidden": [12, 6]}),
        untrained(game, 4, algorithm="dqn"),
        untrained(game, 5, network={"hidden": [8], "recurrent": 4}),
        untrained(game, 6, n_frames=2),
    ]


def test_unlike_layouts_and_memories_play_as_pair_by_pair():
    """Greedy policies of connect four do the same in every match."""
    game = "connect_four"
    players = layouts(game)
    expected = pair_by_pair(game, players)
    assert len(np.unique(expected)) > 2
    entrants = {str(i): player for i, player in enumerate(players)}
    found = play_across(game, {}, entrants, 3, seed=5)
    assert found.means.tolist() == expected.tolist()
    assert (found.errors == 0).all()


def test_sampled_play_is_that_of_pair_by_pair_within_errors():
    game, count = "connect_four", 300
    players = [untrained(game, 1), untrained(game, 4, algorithm="dqn"), untrained(game, 2)]
    expected = pair_by_pair(game, players, sampled=True, episodes=count)
    entrants = {str(i): player for i, player in enumerate(players)}
    found = play_across(game, {}, entrants, count, sampled=True)
    apart = ~np.eye(3, dtype=bool)
    assert (found.errors[apart] > 0).all()
    deviations = (found.means - expected)[apart] / (np.sqrt(2) * found.errors[apart])
    assert np.abs(deviations).max() < 4.5


def test_the_seed_and_not_the_number_of_copies_decides():
    game = "connect_four"
    entrants = {"a": untrained(game, 1), "b": untrained(game, 4, algorithm="dqn")}
    entrants |= {"c": untrained(game, 5, network={"hidden": [8], "recurrent": 4})}
    entrants |= {"random": "random", "tactician": "tactician"}
    setup = setup_of_entrants(game, {}, entrants, seed=3, sampled=True)
    found = [play(setup, 8, copies=copies) for copies in (3, 16, 200)]
    for other in found[1:]:
        assert (other.means == found[0].means).all()
        assert (other.errors == found[0].errors).all()
    another = play(replace(setup, seed=4), 8)
    assert (another.means != found[0].means).any()


def test_dealt_games_draw_the_same_whatever_copy_plays_them():
    setup = setup_of_entrants("kuhn_poker", {}, {"r": "random", "b": always(2, "kuhn_poker")})
    few, many = play(setup, 30, copies=4), play(setup, 30, copies=60)
    assert (few.means == many.means).all()
    assert (few.errors == many.errors).all()


def eight_on_four():
    """The configuration of eight policies on four seats, and their weights with versions 1 to 8."""
    config = load_config(
        {
            "game": PULL,
            "policy": {"algorithm": "ppo", "network": {"hidden": [4]}},
            "population": {"matchmaker": "uniform", "policies": 8},
        }
    )
    specs = policy_specs(config, make_env(PULL, 1).agents)
    snapshots = {
        spec.name: Snapshot(first_weights(spec, torch_rng(i, "w")), i + 1, 0, 0.0)
        for i, spec in enumerate(specs)
    }
    return config, snapshots


@pytest.mark.slow
def test_every_policy_of_a_population_takes_every_seat(tmp_path):
    """With eight policies on four seats four of them never played."""
    config, snapshots = eight_on_four()
    setup = setup_of_snapshots(spec_of(config), {"early": snapshots, "late": snapshots})
    play(setup, 16, tmp_path / "t")
    names, records = read_records(tmp_path / "t" / "ledger.bin")
    assert names == ("early", "late")
    for seat in range(4):
        counts = np.bincount(records["newest"][:, seat], minlength=9)[1:]
        assert (counts == len(records) / 8).all()


def test_eight_single_policies_take_every_seat(tmp_path):
    entrants = {str(i): always(i % 2, PULL, version=i) for i in range(8)}
    found = play_across(PULL, {}, entrants, 2, directory=tmp_path / "t")
    _, records = read_records(tmp_path / "t" / "ledger.bin")
    for seat in range(4):
        assert len(np.unique(records["policy"][:, seat])) == 8
    assert found.means[1, 0] == 1.0
    assert found.means[2, 7] == -1.0


def test_each_agent_has_a_policy_of_its_own_where_roles_see_different_things():
    payoffs = [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]]
    config = load_config(
        {
            "game": "remuda.envs.games.matrix_games:MatrixGame",
            "env": {"options": {"payoffs": payoffs, "rounds": 1}},
            "policy": {"algorithm": "ppo", "network": {"hidden": [4]}},
        }
    )
    game, options = config.game, config.env.options

    def entrant(rows, columns):
        agents = make_env(game, 1, **options).agents
        found = {}
        for spec, action in zip(policy_specs(config, agents), (rows, columns), strict=True):
            shapes = spec.network().shapes
            parts = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
            parts["policy.bias"][0, action] = 30.0
            weights = np.concatenate([part.ravel() for part in parts.values()])
            found[spec.name] = Snapshot(weights, 1, 0, 0.0)
        return found

    found = play_tournament(config, {"a": entrant(0, 2), "b": entrant(1, 0)}, 3)
    # a against b: on the first seat (0, 0), on the second (1, 2), of which it has what agents have.
    assert found.means.tolist() == [[(5 + 6) / 2, (1 + 12) / 2], [(11 + 2) / 2, 7.5]]


def test_short_matches_do_not_count_more():
    """Half of the matches are 40 times as long, and lost; all that were begun count."""
    setup = setup_of_entrants(LONG, {}, {"a": always(0, LONG), "random": "random"})
    whole = play(setup, 40, copies=16)
    assert whole.num_matches == 40 * 10
    assert abs(whole.means[0, 1]) < 4 * whole.errors[0, 1]


def test_an_interrupted_tournament_has_all_that_were_begun(tmp_path):
    """Those that are under way as it is interrupted are the long ones, which are lost."""
    setup = setup_of_entrants(LONG, {}, {"a": always(0, LONG), "random": "random"})
    whole = tmp_path / "whole"
    play(setup, 60, whole)
    every = {r["number"]: r["returns"].tolist() for r in read_records(whole / "ledger.bin")[1]}
    assert len(every) == 600
    told = []
    limits = Limits(
        interrupted=lambda: bool(told) and told[-1] >= 60, watch=lambda d, w: told.append(d)
    )
    found = play(setup, 60, tmp_path / "cut", limits=limits, copies=64)
    assert found.cut == "interrupted"
    assert 60 <= found.num_matches < 600
    records = read_records(tmp_path / "cut" / "ledger.bin")[1]
    numbers = sorted(records["number"].tolist())
    assert numbers == list(range(found.num_matches))  # in the order of matches none is left out
    assert all(every[r["number"]] == r["returns"].tolist() for r in records)
    lost = (records["returns"][:, 0] < 0).mean()
    assert 0.3 < lost < 0.7
    assert np.ptp(np.bincount(np.array(numbers) % 10)) <= 1
    # It goes on to what it would have been.
    last = play(setup, 60, tmp_path / "cut")
    assert last.cut == ""
    records = read_records(tmp_path / "cut" / "ledger.bin")[1]
    assert {r["number"]: r["returns"].tolist() for r in records} == every
    assert len(records) == 600


def test_a_game_of_one_agent():
    found = play_across(
        "treasure_hunt", {"num_agents": 1}, {"r": "random", "g": "greedy_walker"}, 4
    )
    assert found.means[0].tolist() == [found.means[0, 0]] * 2
    assert found.means[1, 0] > found.means[0, 0]


@pytest.mark.parametrize("sampled", [False, True])
def test_policies_that_explore_by_chance_do_so_only_if_asked(sampled):
    game = "rock_paper_scissors"
    rock = always(0, game)
    even = replace(rock, snapshot=replace(rock.snapshot, weights=0.0 * rock.snapshot.weights))
    found = play_across(game, {}, {"even": even, "rock": rock}, 50, sampled=sampled)
    assert (found.errors[0, 1] > 0) == sampled


@pytest.mark.parametrize("name", sorted(GAMES))
def test_every_game_plays_the_same_matches_in_few_copies_and_in_many(name):
    setup = setup_of_entrants(name, {}, {"random": "random"}, seed=2)
    few, many = play(setup, 6, copies=2), play(setup, 6, copies=6)
    assert few.num_matches == many.num_matches == 6
    assert few.means.tolist() == many.means.tolist()
    assert few.errors.tolist() == many.errors.tolist()


def test_a_memory_is_empty_at_the_beginning_of_each_match():
    """Copies play many matches one after the other; greedy ones are the same each time."""
    game = "connect_four"
    entrants = {str(i): player for i, player in enumerate(layouts(game)[3:])}
    setup = setup_of_entrants(game, {}, entrants)
    alone, in_turn = play(setup, 1), play(setup, 4, copies=5)
    assert in_turn.means.tolist() == alone.means.tolist()
    assert (in_turn.errors == 0).all()


def test_a_scripted_policy_is_only_asked_about_its_game():
    """The tactician looks into Connect Four, and no stand-in is ever in its place."""
    found = play_across("connect_four", {}, {"one": "tactician", "two": "random"}, 2)
    assert found.means[0, 1] > 0.0


def test_a_scripted_policy_observes_what_its_game_lets_it_observe():
    """A table of one-hot observations has no entry for zeros."""
    found = play_across(
        "hand_written:Cards", {}, {"one": "hand_written:by_card", "two": "random"}, 4
    )
    assert found.means[0, 0] == 1.0


class Pot(FirstSeat):
    """Three seats of one turn: the highest bids share a pot of 3, and each seat pays 1."""

    SIDES = ("",) * 3

    def end_turn(self):
        bids = self._chosen
        wins = bids == bids.max(1, keepdims=True)
        self._rewards[:] = 3 * wins / wins.sum(1, keepdims=True) - 1
        self._terminated[:], self.active[:] = True, False
        return TurnResult(self._rewards, self._terminated, np.zeros_like(self._terminated))


@pytest.mark.parametrize(
    ("game", "scripted", "is_compared"),
    [
        ("stag_hunt", {}, True),
        ("stag_hunt", {"agent_1": "random"}, False),  # one seat is dealt
        ("rock_paper_scissors", {}, False),
        ("evaluation.tournaments.test_engine:Pot", {}, False),
        ("evaluation.tournaments.test_engine:Pot", {"agent_2": "random"}, True),
    ],
)
def test_self_play_is_compared_unless_returns_have_a_constant_sum(game, scripted, is_compared):
    bids = {f"bid {i}": always(i, game) for i in range(2)} | {"random": "random"}
    found = play(setup_of_entrants(game, {}, bids, taken=scripted), 20)
    assert (found.self_and_cross_play is not None) == is_compared
    assert ("self_and_cross_play" in found.as_summary()) == is_compared
