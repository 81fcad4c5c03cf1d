"""`env.observe_together`: all observe at the start of a turn, and act in the game's order."""

from importlib import import_module
from typing import ClassVar

import numpy as np
import pytest

from assembled import assemble, spec_of
from refusals import refuses
from remuda.config import load_config
from remuda.envs.description import EnvSpec
from remuda.envs.registry import find_game, make_env
from remuda.errors import ConfigError
from remuda.evaluation.evaluate import evaluate
from remuda.evaluation.tournaments.engine import play
from remuda.evaluation.tournaments.entrants import Player, setup_of_entrants, setup_of_snapshots
from remuda.policies.acting import ActingStack
from remuda.policies.networks.kernels.compiled_pass import GatheredPass
from remuda.policies.spec import first_weights
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.runtime.layout import Layout
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import make_target
from remuda.system.rng import torch_rng
from remuda.training.run import train
from remuda.ui.play.playing import episode
from remuda.ui.terminal.live import PlainView
from support import Tape


class Noted(Tape):
    """Notes who observes and who acts, in their order, in one list of all that are made."""

    heard: ClassVar[list[str]] = []

    def __init__(self, num_envs=3):
        super().__init__(num_envs, num_agents=3, lengths=(4, 7))

    def begin_turn(self):
        super().begin_turn()
        self.heard.append("turn")

    def observe(self, agent, out):
        super().observe(agent, out)
        self.heard.append(f"sees {agent}")

    def act(self, agent, actions):
        super().act(agent, actions)
        self.heard.append(f"acts {agent}")


class Fixed(Noted):
    """A game whose groups cannot be set."""

    turn_groups = property(lambda self: ((0,), (1,), (2,)), lambda self, to: self.fix(to))

    def fix(self, to):
        if to != self.turn_groups:
            raise AttributeError


NOTED = "actor.test_together:Noted"


def notes_of_all():
    """What the games note; as who makes them by name imports them."""
    return import_module(NOTED.partition(":")[0]).Noted.heard


def played(seats, together, turns=20):
    """An actor that has played a few turns, and what it has written, by policy."""
    policy = {"algorithm": "dqn", "network": {"hidden": (4,)}}
    policy |= {"experience": {"segment_length": 5, "capacity": 2000, "learning_starts": 2000}}
    tree = {"game": NOTED, "policy": policy}
    tree["env"] = {"num_envs": 3, "observe_together": together}
    if seats == "dealt":
        tree["population"] = {"policies": 4, "matchmaker": "random"}
    config = load_config(tree)
    agents = make_env(NOTED, 1).agents
    specs = policy_specs(config, agents)
    layout = Layout((3,), (tuple(range(len(specs))),), ("cpu",) * len(specs))
    parts = assemble(config, specs, layout, agents=agents)
    actor = parts.roles()[0].build()
    notes_of_all().clear()
    for _ in range(turns):
        actor.turn()
    seen = [
        ring.shared["observations"][slot, t]
        for experience in parts.experience.values()
        for ring in experience.rings
        for slot in np.flatnonzero(ring.shared["committed"])
        for t in range(ring.shared["committed"][slot])
    ]
    return actor, "|".join(notes_of_all()), np.array(seen)


@pytest.mark.parametrize("seats", ["fixed", "dealt"])
def test_all_observe_before_anybody_acts_and_act_in_the_games_order(seats):
    actor, noted, seen = played(seats, together=True)
    assert actor.seats.groups == ((0, 1, 2),)
    for turn in noted.split("turn|")[1:]:
        assert turn.startswith("sees 0|sees 1|sees 2|acts 0|acts 1|acts 2")
    assert len(seen) > 100
    assert (seen[:, 4] == 0).all()  # nobody had acted yet in the turn


@pytest.mark.parametrize("seats", ["fixed", "dealt"])
def test_without_it_each_sees_what_those_before_it_did(seats):
    actor, noted, seen = played(seats, together=False)
    assert actor.seats.groups == ((0,), (1,), (2,))
    assert noted.startswith("turn|sees 0|acts 0|sees 1|acts 1|sees 2|acts 2")
    assert (seen[:, 4] == seen[:, 1]).all()


@pytest.mark.parametrize("seats", ["fixed", "dealt"])
def test_one_pass_of_the_networks_chooses_for_all(seats, monkeypatch):
    actor, _, _ = played(seats, together=True, turns=1)
    passes, outputs, gathered = [], ActingStack.outputs, GatheredPass.__call__

    def of_neighbours(stack, first, end):
        streams = stack.inputs.shape[1]
        passes.append(list(range(first * streams, end * streams)))
        return outputs(stack, first, end)

    def of_gathered(forward, inputs, begins, streams):
        passes.append(sorted(streams))
        return gathered(forward, inputs, begins, streams)

    monkeypatch.setattr(ActingStack, "outputs", of_neighbours)
    monkeypatch.setattr(GatheredPass, "__call__", of_gathered)
    actor.turn()
    assert passes == [list(range(9))]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "seats",
    ["fixed", "dealt", "checkpoints", "entrants", "watched", "exploited"],
)
def test_play_after_training_is_of_the_same_game(seats, together):
    tree = {"game": NOTED, "env": {"observe_together": together}}
    if seats == "dealt":
        tree["population"] = {"policies": 4, "matchmaker": "random"}
    config = load_config(tree | {"policy": {"algorithm": "dqn", "network": {"hidden": (4,)}}})
    agents = make_env(NOTED, 1).agents
    specs = policy_specs(config, agents)
    first = {spec.name: first_weights(spec, torch_rng(0, spec.name)) for spec in specs}
    snapshots = {name: Snapshot(weights, 0, 0, 0.0) for name, weights in first.items()}
    notes, options = notes_of_all(), config.env.made_with
    notes.clear()
    if seats == "checkpoints":
        play(setup_of_snapshots(spec_of(config), {"a": snapshots, "b": snapshots}), 2)
    elif seats == "entrants":
        players = {spec.name: Player(spec, snapshots[spec.name], agents[0]) for spec in specs[:2]}
        play(setup_of_entrants(NOTED, options, players), 2)
    elif seats == "watched":
        env = make_env(NOTED, 1, **options)
        for _ in range(3):
            list(episode(env, find_game(NOTED).policy("random"), 50, 0))
    elif seats == "exploited":
        target = make_target(EnvSpec.of(NOTED, options), {"random": ["random"] * 3})
        play_lineups(target, [Lineup()], 8, 0)
    else:
        evaluate(spec_of(config), snapshots, 4)
    turns = [turn for turn in "|".join(notes).split("turn|")[1:] if "acts 2" in turn]
    assert len(turns) > 5
    apart = "sees 0|acts 0|sees 1|acts 1|sees 2|acts 2"
    for turn in turns:
        assert turn.startswith("sees 0|sees 1|sees 2|acts 0|acts 1|acts 2" if together else apart)


def test_a_game_in_which_it_means_nothing_refuses_it(tmp_path):
    tree = {
        "game": "connect_four",
        "env": {"observe_together": True},
        "policy": {"algorithm": "ppo"},
        "run": {"directory": tmp_path / "run"},
    }
    assert not make_env("connect_four", 1).can_observe_together
    with refuses(ConfigError):
        train(load_config(tree), PlainView())
    assert not (tmp_path / "run").exists()


def test_a_game_whose_groups_cannot_be_set_is_told(tmp_path):
    tree = {
        "game": "actor.test_together:Fixed",
        "env": {"observe_together": True},
        "policy": {"algorithm": "ppo"},
        "run": {"directory": tmp_path / "run"},
    }
    with refuses(ConfigError):
        train(load_config(tree), PlainView())
