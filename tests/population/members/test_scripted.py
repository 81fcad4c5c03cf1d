"""Policies that are written by hand as members of a dealt population."""

import json
from collections import defaultdict

import numpy as np
import pytest

import remuda
from assembled import assemble
from hand_written import Witness
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.envs.registry import make_env
from remuda.errors import RemudaError, UsageError
from remuda.experience.replay import TransitionReplay
from remuda.population.directors.director import Birth, Freeze, Retire
from remuda.population.ledger.ledger import read_records
from remuda.population.ledger.records import FRESH, SCRIPTED, PolicyRef
from remuda.population.members.imported import Origin
from remuda.population.members.table_parts import Slots
from remuda.population.roster import Roster
from remuda.population.setup import expected_shares
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.training.run import train
from remuda.ui.analysis.tournament_setup import set_up
from remuda.ui.cli.main import run as command
from remuda.ui.reports.report import write_report
from remuda.ui.terminal.live import PlainView
from support import Script, assert_equal, files_of, sample

TREE = {
    "game": "kuhn_poker",
    "schedule": "sequential",
    "env": {"num_envs": 4},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 8}},
    "run": {"turns": 300, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
    "population": {"matchmaker": "random", "policies": 2, "scripted": {"bot": "random"}},
}
WORLD = {
    "game": "support:Tape",
    "schedule": "sequential",
    "env": {"num_envs": 6},
    "policy": {
        "algorithm": "dqn",
        "n_frames": 1,
        "network": {"hidden": (8,)},
        "experience": {"segment_length": 4, "learning_starts": 64, "capacity": 4000},
    },
    "population": {"matchmaker": "random", "policies": 2},
}
BOT = PolicyRef("bot", SCRIPTED)


def config_of(directory=None, **tree):
    return load_config(overlay(overlay(TREE, {"run": {"directory": directory}}), tree))


def trained(directory, *, resume=False, **tree):
    return train(config_of(directory, **tree), PlainView(), resume=resume)


class World:
    """An actor over a game and all that it writes into, in one process."""

    def __init__(self, scripted, **tree):
        members = {"population": {"scripted": scripted}}
        self.config = load_config(overlay(overlay(WORLD, members), tree))
        agents = make_env(self.config.game, 1).agents
        self.specs = policy_specs(self.config, agents)
        layout = make_layout(self.config, len(self.specs))
        self.assembly = assemble(self.config, self.specs, layout, agents=agents)
        self.table = self.assembly.table
        self.begin()

    def begin(self):
        self.role = self.assembly.roles()[0]
        self.actor = self.role.build()
        self.league = self.actor.seats.league

    def seated(self, name):
        return self.league.seated == self.table.slots.of(name)

    def matches(self):
        records = self.table.records.since(0)[0]
        return records[records["kind"] == 0]


@pytest.mark.slow_cases("fitness", "prioritized", "random", "round_robin")
@pytest.mark.parametrize(
    "matchmaker", ["random", "round_robin", "fitness", "prioritized", "self_play"]
)
def test_every_matchmaker_seats_them_and_they_are_rated(matchmaker, tmp_path):
    members = trained(tmp_path / "run", population={"matchmaker": matchmaker}).record.members
    assert list(members) == ["policy_0", "policy_1", "bot"]
    assert members["bot"].games > 10
    assert not members["bot"].learns
    assert members["bot"].win_rate is not None
    assert members["bot"].uncertainty < FRESH[3]
    names, records = read_records(tmp_path / "run" / "ledger.bin")
    assert names == ("policy_0", "policy_1", "bot")
    theirs = records["policy"] == 2
    assert (records["version"][theirs] == SCRIPTED).all()
    assert (records["newest"][theirs] == -1).all()  # no weights acted
    assert 0.15 < theirs.mean() <= 0.5
    assert (~theirs).any(1).all()  # in each match a policy learns
    assert theirs.any(0).all()  # on every seat


@pytest.mark.slow
def test_they_take_seats_in_the_share_of_the_past(tmp_path):
    games = {}
    for share in (0.1, 0.9):
        population = {"snapshots": {"share": share}}
        members = trained(tmp_path / str(share), population=population).record.members
        games[share] = members["bot"].games / sum(each.games for each in members.values())
    # Of two seats one is a live policy's for sure.
    assert games[0.1] == pytest.approx(0.05, abs=0.03)
    assert games[0.9] == pytest.approx(0.45, abs=0.05)


@pytest.mark.slow
def test_with_frozen_copies_all_of_the_past_are_dealt_alike(tmp_path):
    population = {"snapshots": {"every": 4, "keep": 2}}
    trained(tmp_path / "run", population=population, run={"turns": 1500})
    _, records = read_records(tmp_path / "run" / "ledger.bin")
    late = records[records["kind"] == 0][-800:]  # by then there are four copies
    past = late["version"] >= 0
    share = (late["version"][past] == SCRIPTED).mean()
    assert share == pytest.approx(0.2, abs=5.0 * np.sqrt(0.16 / past.sum()))


@pytest.mark.slow
def test_they_are_named_in_the_status_the_report_and_analyses(tmp_path, capsys):
    tree = {"population": {"scripted": {"bot": "random", "other": "random"}}}
    trained(tmp_path / "run", run={"turns": 1000}, analysis={"every": 1}, **tree)
    capsys.readouterr()
    assert command(["status", str(tmp_path / "run"), "--json"]) == 0
    members = json.loads(capsys.readouterr().out)["members"]
    assert {"bot", "other"} < set(members)
    assert members["bot"]["games"] > 10
    assert "frozen or scripted" in write_report(tmp_path / "run").read_text()
    run = remuda.load(tmp_path / "run")
    assert set(run.payoffs().names) == {"policy_0", "policy_1", "bot", "other"}
    assert "bot" in set(run.ledger()["agent_0/policy"])
    capsys.readouterr()
    # Two that never learn never meet: a policy that learns has one of the seats.
    words = ["analyse", str(tmp_path / "run"), "--only", "[policy_0,policy_1,bot]", "--json"]
    assert command(words) == 0
    assert '"bot"' in capsys.readouterr().out
    assert list(run) == ["policy_0", "policy_1"]  # these have weights
    assert run.frozen == ()


def test_what_each_does_counts_on_its_seats_alone():
    world = World({"best": "hand_written:three", "worst": "hand_written:nothing"})
    for _ in range(60):
        world.actor.work()
    matches, table = world.matches(), world.table
    assert len(matches) > 60
    lengths = np.array([3, 5])
    returns = defaultdict(set)
    for match in matches:
        for seat in range(2):
            returns[table.names[match["policy"][seat]]].add(float(match["returns"][seat]))
    assert returns["best"] == set((3.0 * lengths).tolist())
    assert returns["worst"] == {0.0}
    assert len(returns["policy_0"] | returns["policy_1"]) > 5
    best = table.population()[PolicyRef("best", SCRIPTED)]
    worst = table.population()[PolicyRef("worst", SCRIPTED)]
    assert best.win_rate > 0.95
    assert worst.win_rate < 0.05
    assert best.rating > 30
    assert worst.rating < 20
    ledger = world.league.ledger
    assert ledger.win_rate(PolicyRef("policy_0"), best.ref, 0.0) < 0.05
    assert ledger.meetings(PolicyRef("policy_0"), best.ref) > 5


@pytest.mark.parametrize("together", [False, True])
def test_what_they_do_is_no_experience_of_any_policy(together):
    env = {"observe_together": together, "num_envs": 6}
    world = World({"bot": "hand_written:three", "other": "hand_written:nothing"}, env=env)
    truth, game = defaultdict(set), world.actor.env
    for _ in range(80):
        before = game._episode.copy(), game._turn.copy()
        seated = world.league.seated.copy()
        world.actor.work()
        for copy, seat in np.ndindex(seated.shape):
            step = (copy, seat, int(before[0][copy]), int(before[1][copy]))
            truth[world.table.names[world.table.occupants.identity[seated[copy, seat], 0]]].add(
                step
            )
    for policy in ("policy_0", "policy_1"):
        experience = world.assembly.experience[policy]
        replay = TransitionReplay([experience], 1, 0.9, np.random.default_rng(0))
        found = set()
        for _ in range(300):
            batch = sample(replay, 64)
            found |= {tuple(step) for step in batch.s_tm1[:, :4].astype(int).tolist()}
            assert (batch.r_t == batch.a_tm1).all()
        assert found <= truth[policy]
        assert len(found) > 0.8 * len(truth[policy])
    assert truth["bot"]
    assert truth["other"]


def test_they_are_asked_where_they_sit_alone_and_as_late_as_they_act():
    world = World({"bot": "hand_written:Witness"}, env={"num_envs": 2})
    game = world.actor.env
    for _ in range(40):
        Witness.calls = []
        sat = world.seated("bot").any(0)
        episode = game._episode.copy()
        world.actor.work()
        assert [agent for agent, *_ in Witness.calls] == np.flatnonzero(sat).tolist()
        for agent, observations, acts in Witness.calls:
            assert (observations[:, 0] == [0, 1]).all()
            assert (observations[:, 1] == agent).all()
            assert (observations[:, 2] == episode).all()
            assert acts == agent  # those before it have acted
            assert (observations[:, 4] == agent).all()


@pytest.mark.parametrize("who", ["random", "hand_written:last_allowed"])
def test_masks_are_kept(who):
    """The game raises where a closed door is chosen."""
    world = World({"bot": who}, game="masked_games:Doors")
    for _ in range(60):
        world.actor.work()
    assert world.table.population()[BOT].games > 20


def test_agents_that_act_in_turn_play_against_one_that_looks_into_the_game(tmp_path):
    population = {"policies": 1, "scripted": {"bot": "tactician"}}
    members = trained(
        tmp_path / "run",
        game="connect_four",
        population=population,
        env={"num_envs": 16},
    ).record.members
    assert members["bot"].games > 30
    assert members["bot"].win_rate > 0.9


def test_shared_rewards_do_not_hide_the_game(tmp_path):
    population = {"scripted": {"bot": "tactician"}}
    tree = {"game": "connect_four", "policy": {"share_rewards": 0.5}}
    members = trained(tmp_path / "run", population=population, **tree).record.members
    assert members["bot"].games > 10


def test_they_sit_where_they_may():
    world = World({"bot": "random"}, population={"seats": {"bot": ["agent_1"]}})
    for _ in range(40):
        world.actor.work()
        assert not world.seated("bot")[:, 0].any()
    assert world.table.population()[BOT].games > 10


def test_policies_learn_from_as_many_seats_as_these_leave_them():
    """Rollouts are as large as what policies are dealt, so that a stack has them together."""
    seats = {"policy_0": ["agent_0"], "policy_1": ["agent_1"], "bot": ["agent_1"]}
    population = {"seats": seats, "snapshots": {"share": 0.8}, "scripted": {"bot": "random"}}
    config = load_config(overlay(WORLD, {"population": population}))
    roster = Roster.of(config, make_env(config.game, 1).agents)
    shares = expected_shares(config.population, roster)
    # Agent 1 is for sure a live policy's in half of the matches, and else in a fifth of them.
    assert shares == pytest.approx({"policy_0": 1.0, "policy_1": 0.6}, abs=0.05)


def test_they_play_agents_that_see_and_do_other_things():
    seats = {"policy_0": ["agent_0"], "policy_1": ["agent_1"]}
    world = World({"bot": "random"}, game="hand_written:Unlike", population={"seats": seats})
    sat = np.zeros(2)
    for _ in range(60):
        world.actor.work()
        sat += world.seated("bot").sum(0)
    assert (sat > 50).all()
    best = max(match["returns"][1] for match in world.matches() if match["policy"][1] == 2)
    assert best > 15  # of six actions, not of four


def test_prioritized_seats_those_more_who_win_more():
    scripted = {"best": "hand_written:three", "worst": "hand_written:nothing"}
    world = World(scripted, population={"matchmaker": "prioritized"})
    for _ in range(200):
        world.actor.work()
    members = world.table.population()
    games = {name: members[PolicyRef(name, SCRIPTED)].games for name in scripted}
    assert games["best"] > 5 * games["worst"]


def test_a_class_is_made_with_nothing():
    world = World({"bot": "hand_written:Two"})
    for _ in range(40):
        world.actor.work()
    matches = world.matches()
    theirs = matches["returns"][matches["policy"] == 2]
    assert set(theirs.tolist()) == {6.0, 10.0}


def test_functions_of_python_are_members(tmp_path):
    result = remuda.train(
        "support:Tape",
        schedule="sequential",
        policy=TREE["policy"],
        population={
            "matchmaker": "random",
            "policies": 2,
            "scripted": {"mine": lambda env, agent, seen, rng: np.full(len(seen), 3)},
        },
        run={"turns": 100, "evaluate_episodes": 0, "directory": tmp_path / "run"},
    )
    assert result.record.members["mine"].win_rate > 0.9
    members = remuda.load(tmp_path / "run").config.population.scripted
    assert members["mine"].startswith("pickled:")


# What a run guarantees.

RESUMED = {
    "population": {
        "matchmaker": "prioritized",
        "scripted": {"bot": "random", "other": "random"},
        "snapshots": {"every": 4, "keep": 2},
    },
    "run": {"turns": 600},
}


@pytest.mark.slow
def test_a_run_repeats_itself_and_is_resumed_exactly(tmp_path):
    for name in ("whole", "again"):
        trained(tmp_path / name, **RESUMED)
    trained(tmp_path / "parts", **overlay(RESUMED, {"run": {"turns": 274}}))
    trained(tmp_path / "parts", **RESUMED, resume=True)
    whole, again, parts = (files_of(tmp_path / name) for name in ("whole", "again", "parts"))
    assert_equal(whole, again)
    assert_equal(whole, parts)


@pytest.mark.slow
def test_schedules_agree(tmp_path):
    for schedule in ("sequential", "lockstep"):
        trained(tmp_path / schedule, schedule=schedule, **RESUMED)
    assert_equal(files_of(tmp_path / "sequential"), files_of(tmp_path / "lockstep"))


@pytest.mark.process
@pytest.mark.slow
def test_they_take_part_in_a_run_of_several_processes(tmp_path):
    result = trained(tmp_path / "run", schedule="async", run={"turns": 2000})
    assert result.record.members["bot"].games > 10


def test_a_successor_of_the_actor_goes_on_with_them():
    world = World({"best": "hand_written:three", "gone": "random"})
    world.league.lifecycle.carry_out(
        Retire(PolicyRef("gone", SCRIPTED)), world.actor.seats, world.league.matchmaker
    )
    for _ in range(40):
        world.actor.work()
    ref = PolicyRef("best", SCRIPTED)
    games = world.table.population()[ref].games
    assert games > 20
    world.begin()
    assert PolicyRef("gone", SCRIPTED) not in world.league.population
    assert world.league.population[ref].games == games
    for _ in range(40):
        world.actor.work()
    assert world.table.population()[ref].games > games + 20
    matches = world.matches()
    slot = world.table.names.index("best")
    assert set(matches["returns"][matches["policy"] == slot].tolist()) == {9.0, 15.0}


def test_a_successor_draws_other_numbers():
    """As its matches are others: the generator is named by the turn at which it begins."""
    world, drawn = World({"bot": "random"}), []
    for _ in range(2):
        drawn.append(
            world.actor.seats.state()["scripted"]["population.scripted.bot"]["state"]["state"]
        )
        world.actor.work()
        world.begin()
    assert drawn[0] != drawn[1]


@pytest.mark.slow
def test_a_director_may_retire_them_and_neither_copy_nor_freeze_them(tmp_path):
    population = {"director": "support:Script"}
    Script.commands = [Retire(BOT)]
    trained(tmp_path / "retired", population=population)
    _, records = read_records(tmp_path / "retired" / "ledger.bin")
    matches = records[records["kind"] == 0]
    assert (matches["policy"][-100:] < 2).all()
    Script.commands = [Freeze("bot")]
    with_room = {**population, "snapshots": {"every": 10**6}}
    with refuses(RemudaError):
        trained(tmp_path / "frozen", population=with_room)
    population["births"] = {"slots": 1}
    for parents in ([BOT], [PolicyRef("policy_0"), {}, 0.0, BOT, 0.5]):
        Script.commands = [Birth("born_0", *parents)]
        with refuses(RemudaError):
            trained(tmp_path / str(len(parents)), population=population)


def test_slots_are_numbered_with_members_of_other_runs():
    origins = [
        Origin("old", 7, "a", "/run", "b", 0, 0.0),
        Origin("old", 9, "a", "/run", "b", 0, 0.0),
    ]
    slots = Slots(("a", "b"), 2, origins, ("x", "y"))
    assert len(slots) == 2 + 4 + 2 + 2
    assert slots.names == ("a", "b", "x", "y", "old")
    assert (slots.scripted, slots.imported) == (range(6, 8), range(8, 10))
    assert [slots.of(name) for name in slots.names] == [0, 1, 6, 7, 8]
    assert {slot: str(ref) for slot, ref in slots.outsiders.items()} == {
        6: "x",
        7: "y",
        8: "old@7",
        9: "old@9",
    }


# Tournaments of a run's members.


@pytest.mark.slow
def test_they_play_in_tournaments_of_the_runs_members(tmp_path, capsys):
    trained(tmp_path / "run", population={"snapshots": {"every": 10}})
    run, frozen = tmp_path / "run", remuda.load(tmp_path / "run").frozen
    found = set_up([f"{run}:all", f"{run}:bot"], "", {})
    assert list(found.entrants) == ["policy_0", "policy_1", "bot"]
    assert found.entrants["bot"] == "random"
    assert set(set_up([f"{run}:all@frozen"], "", {}).entrants) == {*frozen, "bot"}
    with refuses(UsageError):
        set_up([f"{run}:bot@3"], "", {})
    words = ["tournament", f"{run}:policy_0", f"{run}:bot", "--episodes", "20", "--json"]
    assert command(words) == 0
    assert "bot" in capsys.readouterr().out
