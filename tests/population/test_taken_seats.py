"""Seats that `env.scripted` takes for good in games whose other seats are dealt."""

import json
from collections import Counter

import numpy as np
import pytest

import remuda
from assembled import assemble, spec_of
from hand_written import Counting
from refusals import refuses
from remuda.analysis.ranking.ratings import ledger_history
from remuda.config import load_config, overlay
from remuda.config.population import PopulationConfig
from remuda.coordinator.analysing import chosen
from remuda.coordinator.best_checkpoint import measurement
from remuda.envs.registry import make_env
from remuda.errors import ConfigError, ContractError, RemudaError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import margin
from remuda.experience.replay import TransitionReplay
from remuda.population.directors.director import Retire
from remuda.population.ledger.ledger import Ledger, read_records
from remuda.population.ledger.records import SCRIPTED, Member, PolicyRef, Population
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.population.members.table import Table
from remuda.population.roster import Roster
from remuda.population.setup import expected_shares, make_matchmaker
from remuda.population.specs import policy_specs
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import published
from remuda.runtime.layout import make_layout
from remuda.solvers.exploit.parse_target import of_run
from remuda.training.run import train
from remuda.training.saved.policies import SavedPolicies
from remuda.ui.analysis.sources import open_sources
from remuda.ui.dashboard.population import population_of as population_page
from remuda.ui.plots.charts import payoffs_picture
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.live import PlainView
from support import Script, assert_equal, files_of, sample

PREY = PolicyRef("prey", SCRIPTED)
TREE = {
    "game": "hand_written:Chased",
    "schedule": "sequential",
    "env": {"num_envs": 4, "scripted": {"prey": "hand_written:five"}},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 8}},
    "run": {"turns": 300, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
    "population": {"matchmaker": "random", "policies": 4},
}
AGENTS = ("agent_0", "prey", "agent_2", "agent_3")
LEFT = (0, 2, 3)
TEAMS = {
    "red": {"policies": ("policy_0", "policy_1"), "agents": ("agent_0",)},
    "blue": {"policies": ("policy_2", "policy_3"), "agents": ("agent_2", "agent_3")},
}
OF = {
    "fixed": {"policies": 3},
    "self_play": {"policies": 1},
    "teams": {"teams": TEAMS},
    "mixed": {"shares": {"self_play": 0.5, "prioritized": 0.5}, "snapshots": {"every": 4}},
    "league": {"policies": None, "league": {"learn_from": "own"}},
}
MATCHMAKERS = ["random", "round_robin", "fitness", "prioritized", *OF]
VALUES = {
    "algorithm": "dqn",
    "n_frames": 1,
    "batch_size": 64,
    "network": {"hidden": (8,)},
    "experience": {"segment_length": 4, "learning_starts": 64, "capacity": 4000},
}


def config_of(directory=None, **tree):
    return load_config(overlay(overlay(TREE, {"run": {"directory": directory}}), tree))


def trained(directory, *, resume=False, **tree):
    return train(config_of(directory, **tree), PlainView(), resume=resume)


def population_of(matchmaker):
    return {"population": {"matchmaker": matchmaker, **OF.get(matchmaker, {})}}


def roster_of(config):
    return Roster.of(config, make_env(config.game, 1).agents)


def members_of(roster):
    refs = [*map(PolicyRef, roster.policies), *(PolicyRef(n, SCRIPTED) for n in roster.scripted)]
    return Population([Member(ref, roster.seats.get(ref.policy)) for ref in refs])


@pytest.mark.parametrize("matchmaker", MATCHMAKERS)
def test_every_matchmaker_deals_what_is_left(matchmaker):
    config = config_of(**population_of(matchmaker))
    roster = roster_of(config)
    population, found = members_of(roster), make_matchmaker(config.population, roster)
    assert roster.scripted == ("prey",)
    ledger, random = Ledger(population), np.random.default_rng(0)
    matches = found.propose(population, ledger, 60, random)
    if config.population.keeps_copies:  # the past takes seats too
        for policy in roster.policies:
            population.freeze(policy, 3)
        matches += found.propose(population, ledger, 200, random)
        assert any(ref.version == 3 for match in matches for ref in match.seats)
    assert [match.id for match in matches] == list(range(len(matches)))
    sat = Counter()
    for match in matches:
        assert match.seats[1] == PREY
        others = [match.seats[seat] for seat in LEFT]
        assert PREY not in others
        assert match.learns is None or match.learns <= {*LEFT}
        assert any(not ref.is_frozen for ref in others)
        sat.update((seat, match.seats[seat].policy) for seat in LEFT)
    if matchmaker not in ("fixed", "teams"):
        assert len(sat) == 3 * len(roster.policies)
    state = found.state()
    ahead = found.propose(population, ledger, 5, np.random.default_rng(1))
    again = make_matchmaker(config.population, roster)
    again.restore(state)
    assert again.propose(population, ledger, 5, np.random.default_rng(1)) == ahead


@pytest.mark.parametrize("matchmaker", [each for each in MATCHMAKERS if each != "teams"])
def test_shares_are_those_of_a_game_of_as_many_seats(matchmaker):
    config = config_of(**population_of(matchmaker))
    shares = expected_shares(config.population, roster_of(config))
    smaller = Roster(("a", "b", "c"), roster_of(config).policies)
    assert shares == pytest.approx(expected_shares(config.population, smaller))


@pytest.mark.slow_cases(
    "fitness", "fixed", "league", "mixed", "prioritized", "random", "round_robin", "teams"
)
@pytest.mark.parametrize("matchmaker", MATCHMAKERS)
def test_it_plays_and_is_rated_and_all_others_learn(matchmaker, tmp_path):
    result = trained(tmp_path / "run", **population_of(matchmaker))
    members = result.record.members
    assert members["prey"].games > 40
    names, records = read_records(tmp_path / "run" / "ledger.bin")
    matches = records[records["kind"] == 0]
    prey = names.index("prey")
    assert (matches["policy"][:, 1] == prey).all()
    assert (matches["policy"][:, LEFT] != prey).all()
    assert set(matches["returns"][:, 1].tolist()) == {15.0, 25.0}  # five in every turn
    policies = result.record.policies
    assert all(policy.updates > 0 for policy in policies.values())
    if not OF.get(matchmaker, {}).keys() & {"snapshots", "league"}:  # nobody else sat there
        assert sum(policy.steps for policy in policies.values()) == 3 * result.record.turns


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("alike", [False, True])
def test_what_it_does_is_no_experience_of_any_policy(alike, together):
    """Also where policies might sit there by what the agent sees and does."""
    game = {"game": "support:Tape", "env": {"options": {"num_agents": 4}}} if alike else {}
    who = {"env": {"scripted": {"agent_1" if alike else "prey": "hand_written:three"}}}
    tree = overlay(overlay(TREE, {"env": {"scripted": None}}), {"policy": VALUES})
    config = load_config(overlay(overlay(tree, game), who))
    agents = make_env(config.game, 1, **config.env.made_with).agents
    specs = policy_specs(config, agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    actor, truth = assembly.roles()[0].build(), Counter()
    for _ in range(40):
        seated = actor.seats.league.seated.copy()
        assert (seated[:, 1] == assembly.table.slots.of(agents[1].name)).all()
        actor.work()
        truth.update(seated[:, LEFT].ravel().tolist())
    for slot, policy in enumerate(assembly.table.policies):
        experience = assembly.experience[policy]
        replay = TransitionReplay([experience], 1, 0.9, np.random.default_rng(0))
        found = set()
        for _ in range(200):
            batch = sample(replay, 64)
            found |= {tuple(step) for step in batch.s_tm1[:, :4].astype(int).tolist()}
            assert (batch.r_t == batch.a_tm1).all()
        assert 0.8 * truth[slot] < len(found) <= truth[slot]
        assert all(agent != 1 for _, agent, *_ in found)


@pytest.mark.slow
@pytest.mark.parametrize("matchmaker", ["self_play", "round_robin", "league"])
def test_a_run_repeats_itself_and_is_resumed_exactly(matchmaker, tmp_path):
    tree = overlay(population_of(matchmaker), {"env": {"scripted": {"prey": "random"}}})
    tree = overlay(tree, {"run": {"turns": 600}})
    for name in ("whole", "again"):
        trained(tmp_path / name, **tree)
    trained(tmp_path / "parts", **overlay(tree, {"run": {"turns": 274}}))
    trained(tmp_path / "parts", **tree, resume=True)
    whole, again, parts = (files_of(tmp_path / name) for name in ("whole", "again", "parts"))
    assert_equal(whole, again)
    assert_equal(whole, parts)


@pytest.mark.slow_cases(
    "double_buffer-iqn",
    "double_buffer-ppo",
    "double_buffer-sac",
    "snapshot-dqn",
    "snapshot-iqn",
    "snapshot-ppo",
)
@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "iqn", "sac"])
@pytest.mark.parametrize("mode", ["double_buffer", "snapshot"])
def test_policies_of_every_algorithm_and_publishing_mode_learn_beside_it(algorithm, mode, tmp_path):
    policy = {} if algorithm == "ppo" else VALUES
    policy = overlay(policy, {"algorithm": algorithm, "publish": {"mode": mode}})
    result = trained(tmp_path / "run", policy=policy, run={"turns": 120})
    assert all(each.updates > 0 for each in result.record.policies.values())
    assert sum(each.steps for each in result.record.policies.values()) == 3 * result.record.turns
    assert {*remuda.load(tmp_path / "run").evaluate(4).returns[:, 1].tolist()} == {15.0, 25.0}


@pytest.mark.slow
def test_schedules_agree(tmp_path):
    for schedule in ("sequential", "lockstep"):
        trained(tmp_path / schedule, schedule=schedule, run={"turns": 600})
    assert_equal(files_of(tmp_path / "sequential"), files_of(tmp_path / "lockstep"))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_it_takes_its_seat_in_a_run_of_several_processes(count, tmp_path):
    result = trained(
        tmp_path / "run",
        schedule="async",
        actor={"processes": count},
        run={"turns": 4000},
        population={"snapshots": {"every": 4}},
    )
    assert result.record.members["prey"].games > 100
    names, records = read_records(tmp_path / "run" / "ledger.bin")
    matches = records[records["kind"] == 0]
    assert (matches["policy"][:, 1] == names.index("prey")).all()


@pytest.mark.slow
def test_it_takes_its_seat_in_evaluations_too(tmp_path):
    trained(tmp_path / "run")
    run = remuda.load(tmp_path / "run")
    found = run.evaluate(8)
    assert found.agents == AGENTS
    assert {*found.returns[:, 1].tolist()} == {15.0, 25.0}
    assert set(found.policies) == {f"policy_{i}" for i in range(4)}


@pytest.mark.slow
def test_births_and_evolution_leave_it_alone(tmp_path):
    population = {"births": {"slots": 1, "every": 20, "games": 5, "confidence": 0.0}}
    result = trained(tmp_path / "births", population=population, run={"turns": 600})
    lines = (tmp_path / "births" / "metrics.jsonl").read_text().splitlines()
    assert len({frozenset(json.loads(line)["members"]) for line in lines}) > 1  # one was born
    assert result.record.members["prey"].games > 40
    numbers = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}
    evolution = {"every": 30, "numbers": numbers, "games": 10}
    result = trained(tmp_path / "evolution", population={"evolution": evolution})
    assert result.record.members["prey"].games > 40


def test_a_director_may_not_retire_it(tmp_path):
    Script.commands = [Retire(PREY)]
    with refuses(RemudaError):
        trained(tmp_path / "run", population={"director": "support:Script"})


def test_what_it_sees_is_checked_as_everything_is(tmp_path):
    with refuses(ContractError):
        trained(tmp_path / "run", game="hand_written:Broken")


@pytest.mark.parametrize(
    "tree",
    [
        {"population": {"seats": {"policy_0": ["prey", "agent_0"]}}},
        {"population": {"policies": ("prey", "one", "two")}},
        {"population": {"scripted": {"prey": "random"}}},
        {"env": {"scripted": dict.fromkeys(AGENTS, "random")}},
        {"env": {"scripted": {"nobody": "random"}}},
        {"env": {"scripted": {"prey": "nobody"}}},
        {
            "population": {
                "matchmaker": "teams",
                "policies": None,
                "teams": {
                    "red": {"policies": ("a",), "agents": ("prey",)},
                    "blue": {
                        "policies": ("b", "c", "d"),
                        "agents": ("agent_0", "agent_2", "agent_3"),
                    },
                },
            }
        },
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tree, tmp_path):
    with refuses(ConfigError):
        trained(tmp_path / "run", **tree)


def test_a_policy_for_each_agent_is_one_for_each_that_is_left():
    config = config_of(population={"policies": None})
    assert roster_of(config).policies == ("agent_0", "agent_2", "agent_3")
    population = PopulationConfig(matchmaker="round_robin", policies=3)
    roster = roster_of(config_of(population={"policies": 3, "matchmaker": "round_robin"}))
    matchmaker, members = make_matchmaker(population, roster), members_of(roster)
    matches = matchmaker.propose(members, Ledger(members), 3, np.random.default_rng(0))
    for seat in LEFT:  # one combination, in each of its rotations
        assert len({match.seats[seat] for match in matches}) == 3


@pytest.mark.slow
def test_scripted_members_are_dealt_seats_beside_it(tmp_path):
    population = {"scripted": {"bot": "random"}, "snapshots": {"share": 0.5}}
    members = trained(tmp_path / "run", population=population).record.members
    assert members["bot"].games > 10
    assert members["prey"].games > 40


CONSTANT = {
    "game": "kuhn_poker",
    "env": {"scripted": {"agent_1": "random", "prey": None}},
    "population": {"policies": 2},
}


def kuhn(directory, **tree):
    whole = overlay(overlay(TREE, CONSTANT), {"run": {"directory": directory}})
    whole["env"]["scripted"].pop("prey")
    return train(load_config(overlay(whole, tree)), PlainView())


@pytest.mark.slow
def test_checkpoints_of_games_of_constant_sum_are_compared_on_the_seats_that_are_dealt(tmp_path):
    result = kuhn(
        tmp_path / "run",
        run={"turns": 2000, "evaluate_episodes": 40},
        checkpoint={"evaluate_episodes": 40, "every": 0.1},
    )
    assert result.notes == ()
    config = remuda.load(tmp_path / "run").config
    files = RunDirectory(tmp_path / "run")
    one, *_, other = files.checkpoints.numbers()
    between = [published(files, spec_of(config), number) for number in (one, other)]
    assert margin(spec_of(config), *between, 40, 0, Limits()) == pytest.approx(
        -margin(spec_of(config), *reversed(between), 40, 0, Limits()), abs=2.0
    )


@pytest.mark.slow
def test_unlike_seats_are_left_out_where_checkpoints_meet(tmp_path):
    trained(tmp_path / "run")
    config = remuda.load(tmp_path / "run").config
    files = RunDirectory(tmp_path / "run")
    number = files.checkpoints.numbers()[-1]
    itself = published(files, spec_of(config), number)
    assert abs(margin(spec_of(config), itself, itself, 20, 0, Limits())) < 20.0


def test_what_it_earns_decides_of_no_checkpoint(tmp_path):
    result = trained(tmp_path / "run", run={"evaluate_episodes": 8})
    others = result.evaluation.returns[:, LEFT].mean()
    assert measurement(result.evaluation, ["prey"])["mean_return"] == pytest.approx(others)
    assert result.evaluation.returns[:, 1].mean() > others


@pytest.mark.slow
def test_it_is_no_strategy_for_other_seats(tmp_path):
    kuhn(tmp_path / "run", run={"turns": 2000}, population={"snapshots": {"every": 4}})
    assert "agent_1" not in remuda.load(tmp_path / "run").payoffs().names
    trained(tmp_path / "other")
    names = remuda.load(tmp_path / "other").payoffs().names
    assert set(names) == {f"policy_{i}" for i in range(4)}
    config = config_of()
    roster = roster_of(config)
    table = Table(dict.fromkeys(roster.policies, 0), 4, 0, scripted=roster.scripted)
    assert len(chosen(table, 9)) == 5
    found = chosen(table, 9, roster.reserved_members)
    assert [table.names[number] for number in found[:, 0]] == list(roster.policies)


@pytest.mark.slow
def test_it_is_no_strategy_in_any_picture(tmp_path):
    trained(tmp_path / "run", run={"turns": 2000})
    names = {f"policy_{i}" for i in range(4)}
    exact = remuda.load(tmp_path / "run").payoffs()
    shown = population_page(RunDirectory(tmp_path / "run"))["payoffs"]
    assert set(shown["names"]) == names
    assert shown["matches"] == exact.met.tolist()
    drawn = payoffs_picture(read_run(tmp_path / "run")).figure.axes[0]
    assert {label.get_text().split()[0] for label in drawn.get_yticklabels()} == names
    assert np.array_equal(drawn.images[0].get_array().filled(np.nan), exact.matrix, equal_nan=True)


@pytest.mark.slow
def test_it_is_rated_in_pictures_as_in_training(tmp_path):
    """With two seats that are taken, and with one that plays for a team."""
    two = {"env": {"scripted": {"prey": "random", "agent_2": "random"}}}
    blue = {"policies": ("policy_2",), "agents": ("prey", "agent_2", "agent_3")}
    teams = {"teams": {"red": {"policies": ("policy_0",), "agents": ("agent_0",)}, "blue": blue}}
    team = {"population": {"matchmaker": "teams", "policies": None, **teams}}
    for name, tree in (("two", two), ("team", team)):
        directory = tmp_path / name
        trained(directory, run={"turns": 2000}, **tree)
        (source,) = open_sources([directory])
        history = ledger_history(source.ledger, sides=source.seats.rated)
        last = remuda.load(directory).metrics()
        for at, member in enumerate(history.names):
            if f"{member}/rating" in last:
                known = last[f"{member}/rating"][-1]
                assert history.ratings[-1, at] == pytest.approx(known, abs=1e-3), (name, member)


@pytest.mark.slow
def test_exploiters_play_against_it_too(tmp_path):
    trained(tmp_path / "run")
    target = of_run(SavedPolicies(RunDirectory.open(tmp_path / "run")))
    assert all(seats[1] == "hand_written:five" for seats in target.players)
    assert all(not isinstance(seats[0], str) for seats in target.players)


def test_exploiters_play_against_it_too_where_each_agent_has_its_own(tmp_path):
    taken = {"env": {"scripted": {"agent_2": "random"}}}
    trained(tmp_path / "run", population={"matchmaker": "fixed", "policies": None}, **taken)
    target = of_run(SavedPolicies(RunDirectory.open(tmp_path / "run")), ("agent_0",))
    assert target.players[0][1:3] == ("hand_written:five", "random")
    assert not isinstance(target.players[0][3], str)


class TooFew(Matchmaker):
    """Deals one seat less, or more, than there are."""

    def __init__(self, num_seats, more=-1):
        super().__init__(num_seats)
        self.more = more

    def seat(self, population, ledger, random):
        return (population.learning[0].ref,) * (self.num_seats + self.more)


@pytest.mark.parametrize("more", [-1, 1])
def test_ones_own_matchmaker_is_refused_where_it_deals_other_seats(more, tmp_path):
    own = {"matchmaker": "population.test_taken_seats:TooFew", "options": {"more": more}}
    with refuses(ConfigError):
        trained(tmp_path / "run", population=own)


def test_ones_own_matchmaker_knows_how_many_matches_are_over(tmp_path):
    Counting.known.clear()
    own = {"matchmaker": "hand_written:Counting"}
    own |= {"policies": 1, "snapshots": {"every": 4}}
    trained(tmp_path / "run", population=own)
    assert max(Counting.known) > 40


def test_a_seat_that_nobody_may_take_is_told_by_its_number_in_the_game(tmp_path):
    seats = {"policy_0": ["agent_0", "agent_3"], "policy_1": ["agent_0", "agent_3"]}
    with refuses(ConfigError):
        trained(tmp_path / "run", population={"policies": 2, "seats": seats})
