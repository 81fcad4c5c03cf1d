"""Games that break their contract are told by agent, copy, turn and value, and never trained on."""

import re
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from assembled import assemble, spec_of
from faulty_games import (
    FAULTS,
    FAULTY,
    GAMES,
    LAST,
    VALUES,
    Alone,
    AtOnce,
    InTurn,
    actor_of,
    play,
    second,
)
from refusals import refuses
from remuda.actor.role import ActorRole
from remuda.config import load_config
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.adapters.sorrel import SorrelCopies
from remuda.envs.checks import broken
from remuda.envs.contract import check_env
from remuda.envs.registry import make_env
from remuda.envs.workers.pool import WorkerEnvs
from remuda.errors import ContractError, RemudaError
from remuda.population.specs import policy_specs
from remuda.runtime.layout import Layout
from remuda.system.scoreboard import Scoreboard
from remuda.training.run import train
from remuda.types import TurnResult
from remuda.ui.terminal.live import PlainView
from sorrel_double import berries
from support import Tape


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", GAMES)
def test_what_a_library_s_game_hands_over_is_checked(kind, fault):
    adapter, game, name = GAMES[kind]
    if (kind, fault) == ("aec", "no end"):
        pytest.skip("an AEC game tells ends by its own attributes")
    with pytest.raises(ContractError) as error:
        play(actor_of(adapter(second(game, fault), 2)))
    message = str(error.value)
    turn = FAULTY + (kind != "aec" and fault in LOOKED_AT_LATER)
    assert f"{name} in copy 1, turn {turn} of the episode: " in message
    assert re.search(VALUES[fault][2], message), message
    # Who is told so may train on: the game that goes unchecked must be able to go on.
    assert ("--env.check false" in message) == (fault not in NEVER)
    assert "\n" not in message


NEVER = ("observation of text", "reward of a vector")
"""What no array of numbers takes, checked or not."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", GAMES)
def test_what_may_go_unchecked_by_its_message_does(kind, fault):
    adapter, game, _ = GAMES[kind]
    actor = actor_of(adapter(second(game, fault), 2), check=False)
    if fault in NEVER:
        with refuses(ContractError):
            play(actor)
    else:
        with np.errstate(over="ignore"):
            play(actor)


LOOKED_AT_LATER = (
    "observation that is not a number",
    "infinite observation",
    "observation beyond its dtype",
)
"""Found when the agent acts on it, in the turn after."""


@pytest.mark.parametrize("fault", ["no observation", "no reward", "no end"])
def test_a_value_that_is_left_out_is_missed(fault):
    with refuses(ContractError):
        play(actor_of(ParallelCopies(lambda: AtOnce(fault, leaves_out=True), 1)))


@pytest.mark.slow_cases(
    "aec-infinite observation",
    "aec-infinite reward",
    "aec-no observation",
    "aec-no reward",
    "aec-observation beyond its dtype",
    "aec-observation of text",
    "aec-observation that is not a number",
    "aec-reward of a vector",
    "aec-reward that is not a number",
    "aec-short observation",
    "gymnasium-infinite observation",
    "gymnasium-infinite reward",
    "gymnasium-observation beyond its dtype",
    "parallel-infinite observation",
    "parallel-infinite reward",
    "parallel-no end",
    "parallel-no observation",
    "parallel-no reward",
    "parallel-observation beyond its dtype",
    "parallel-observation of text",
    "parallel-observation that is not a number",
    "parallel-reward of a vector",
    "parallel-reward that is not a number",
    "parallel-short observation",
)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", GAMES)
def test_the_contract_suite_refuses_such_a_game(kind, fault):
    adapter, game, _ = GAMES[kind]
    if (kind, fault) == ("aec", "no end"):
        pytest.skip("an AEC game tells ends by its own attributes")
    check_env(lambda num_envs: adapter(lambda: game("nothing"), num_envs))
    with (
        np.errstate(over="ignore"),
        refuses(ContractError),
    ):
        check_env(lambda num_envs: adapter(lambda: game(fault), num_envs))


@pytest.mark.parametrize(
    "fault", ["short observation", "no observation", "no reward", "reward that is not a number"]
)
def test_the_checks_can_be_switched_off(fault):
    """A game that worked somehow before goes on to work somehow."""
    if fault == "no observation":
        play(actor_of(ParallelCopies(lambda: AtOnce(fault, leaves_out=True), 2), check=False))
    else:
        play(actor_of(ParallelCopies(lambda: AtOnce(fault), 2), check=False))


class Spoilt(Tape):
    """Does something wrong to agent_1 in copy 2, in the second turn of an episode."""

    def __init__(self, num_envs=3, fault="nan"):
        super().__init__(num_envs, num_agents=2, lengths=(5,))
        self.fault = fault

    def end_turn(self):
        result = super().end_turn()
        now = self._turn == 2
        rewards, ends, cuts = result.rewards, result.terminated, result.truncated
        if self.fault in ("nan", "inf"):
            rewards[now, 1] = float(self.fault)
            rewards[:2] = 0.0
        elif self.fault == "both":
            ends[2, 1] |= now[2]
            cuts[2, 1] |= now[2]
            self.active[2, 1] &= not now[2]
        elif self.fault == "active":
            ends[2, 1] |= now[2]
        elif self.fault == "left":
            self.active[2] &= not now[2]
            ends[2, 0] |= now[2]
            cuts[2, 0] &= not now[2]
        elif self.fault == "shape":
            rewards = rewards.sum(1)
        elif self.fault == "objects":
            rewards = rewards.astype(object)
        return TurnResult(rewards, ends, cuts)


@pytest.mark.parametrize("seats", ["fixed", "dealt"])
@pytest.mark.parametrize(
    "fault",
    [
        "nan",
        "inf",
        "both",
        "active",
        "left",
        "shape",
        "objects",
    ],
)
def test_results_of_a_turn_are_checked(seats, fault):
    with refuses(ContractError):
        play(seated(seats, Spoilt(fault=fault)))


def seated(seats, env, **tree):
    """An actor with fixed seats, or one that deals them."""
    policy = {
        "algorithm": "ppo",
        "network": {"hidden": (4,)},
        "experience": {"on_full": "overwrite"},
    }
    tree = {"policy": policy, "env": {"num_envs": env.num_envs} | tree}
    if seats == "dealt":
        tree["population"] = {"policies": 3, "matchmaker": "random"}
    config = load_config(tree)
    specs = policy_specs(config, env.agents)
    count = len(specs)
    layout = Layout((env.num_envs,), (tuple(range(count)),), ("cpu",) * count)

    class Role(ActorRole):
        def make_env(self, begins=""):
            return env

    return assemble(config, specs, layout, actor_role=Role, agents=env.agents).roles()[0].build()


class SeesNothing(Tape):
    """agent_0 sees something that is no number: while it acts, or after its episode's end."""

    def __init__(self, num_envs=3, after=False):
        super().__init__(num_envs, lengths=(4,))
        self.after, self.playing = after, False

    def begin_turn(self):
        super().begin_turn()
        self.playing = True

    def end_turn(self):
        self.playing = False
        return super().end_turn()

    def observe(self, agent, out):
        super().observe(agent, out)
        if agent == 0 and self._turn[1] == (4 if self.after else 2):
            out[1, 3] = np.nan


@pytest.mark.parametrize("seats", ["fixed", "dealt"])
@pytest.mark.parametrize("after", [False, True])
def test_observations_of_any_game_are_finite(seats, after):
    with refuses(ContractError):
        play(seated(seats, SeesNothing(after=after)))


class Stuck(Tape):
    """agent_1 may do nothing in copy 1, from the third turn on."""

    def __init__(self, num_envs=2):
        super().__init__(num_envs, lengths=(6,))
        self.agents = tuple(
            type(spec)(spec.name, spec.observation_space, spec.action_space, masked=True)
            for spec in self.agents
        )

    def mask(self, agent, out):
        out[...] = True
        if agent == 1 and self._turn[1] >= 2:
            out[1] = False


@pytest.mark.parametrize("seats", ["fixed", "dealt"])
def test_who_acts_may_do_something(seats):
    with refuses(ContractError):
        play(seated(seats, Stuck()))


@pytest.mark.parametrize(
    "name", ["treasure_hunt", "cleanup", "tag", "connect_four", "kuhn_poker", "leduc_poker"]
)
def test_games_that_keep_their_contract_are_let_through(name):
    play(seated("fixed", make_env(name, 4)), 120)


def test_a_sorrel_game_that_gives_nothing_is_told():
    def spoilt():
        game = berries()
        agent = game.agents[1]
        act = agent.act
        agent.act = lambda world, action: np.ones(2) if game.turn == 2 else act(world, action)
        return game

    env = SorrelCopies(spoilt, 2, max_turns=5)
    with refuses(ContractError) as told:
        play(actor_of(env))
    assert "check false" not in str(told.value)  # it cannot be taken, checked or not


def test_a_mask_of_another_length_is_refused():
    class Masks(Alone):
        def step(self, action):
            seen, reward, ends, cut, _ = super().step(action)
            return seen, reward, ends, cut, {"action_mask": np.ones(1 if self.turn == 4 else 2)}

        def reset(self, **options):
            return super().reset(**options)[0], {"action_mask": np.ones(2)}

    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(lambda: Masks("nothing"), 1)))


def test_numbers_that_would_be_cut_are_refused():
    class Cuts(Alone):
        observation_space = spaces.Box(0, 255, (2,), np.uint8)

        def reset(self, **options):
            super().reset(**options)
            return np.zeros(2, np.uint8), {}

        def step(self, action):
            _, *rest = super().step(action)
            return {1: [1, 2], 2: np.array([3.0, 4.0])}.get(self.turn, np.array([256, 0])), *rest

    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(lambda: Cuts("nothing"), 1)))


def faulty(num_envs, fault):
    return ParallelCopies(lambda: AtOnce(fault), num_envs)


def faulty_from_the_third(num_envs, fault):
    """Workers whose share is two copies see nothing of it."""
    made = []

    def each():
        made.append(AtOnce(fault if len(made) >= 2 else "nothing"))
        return made[-1]

    return ParallelCopies(each, num_envs)


@pytest.mark.slow
def test_a_worker_tells_the_copy_by_its_number_in_the_whole():
    env = WorkerEnvs("envs.test_checks:faulty_from_the_third", 5, 2, options={"fault": "no reward"})
    try:
        with refuses(RemudaError):
            play(actor_of(env))
    finally:
        env.close()


def test_the_user_is_told_in_one_line_and_nothing_is_trained_on_it(tmp_path):
    tree = {
        "game": "envs.test_checks:faulty",
        "schedule": "sequential",
        "env": {"options": {"fault": "reward that is not a number"}},
        "policy": {"algorithm": "ppo", "network": {"hidden": (4,)}},
        "run": {"turns": 100, "directory": tmp_path / "run", "evaluate_episodes": 0},
    }
    with refuses(ContractError):
        train(load_config(tree), PlainView())


def closes_masks(game, turn):
    """The game, in which the last agent's mask allows nothing from some turn on."""

    class Closed(game):
        def reset(self, **options):
            told = super().reset(**options)
            if game is InTurn:
                self.infos = self._masks()
                return told
            seen, _ = told
            return seen, self._masks()

        def step(self, action):
            told = super().step(action)
            if game is InTurn:
                self.infos = self._masks()
                return told
            return *told[:-1], self._masks()

        def _masks(self):
            closed = {"action_mask": np.full(2, self.turn < turn)}
            if game is Alone:
                return closed
            return {"ann": {"action_mask": np.ones(2)}, "bob": closed}

    return Closed("nothing")


@pytest.mark.parametrize("kind", GAMES)
def test_a_library_s_mask_that_allows_nothing_is_refused_of_the_agent_that_acts(kind):
    adapter, game, _ = GAMES[kind]
    stuck = adapter(lambda: closes_masks(game, 2), 2)
    with refuses(ContractError):
        play(actor_of(stuck))
    play(actor_of(adapter(lambda: closes_masks(game, 2), 2), check=False))


@pytest.mark.parametrize("kind", ["gymnasium", "parallel"])
def test_a_library_s_mask_that_allows_nothing_after_the_end_is_let_through(kind):
    adapter, game, _ = GAMES[kind]
    play(actor_of(adapter(lambda: closes_masks(game, LAST), 2)))


class TooFine(SeesNothing):
    """agent_0 sees in float64 what float32 does not hold."""

    def __init__(self, num_envs=3, after=False):
        super().__init__(num_envs, after)
        wide = spaces.Box(-np.inf, np.inf, (5,), np.float64)
        self.agents = tuple(replace(spec, observation_space=wide) for spec in self.agents)

    def observe(self, agent, out):
        super().observe(agent, out)
        out[np.isnan(out)] = 1e39


@pytest.mark.slow_cases("False-dealt", "False-fixed")
@pytest.mark.parametrize("seats", ["fixed", "dealt"])
@pytest.mark.parametrize("after", [False, True])
def test_an_observation_beyond_float32_is_refused_by_name(seats, after):
    with refuses(ContractError):
        play(seated(seats, TooFine(after=after)))


@pytest.mark.process
@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("workers", [1, 2])
def test_an_actor_tells_the_copy_by_its_number_in_the_whole_run(workers):
    tree = {
        "game": "envs.test_checks:faulty_from_the_third",
        "env": {"workers": workers, "options": {"fault": "no reward"}},
    }
    role = ActorRole(spec_of(load_config(tree), ()), (), {}, None, None, copies=(4, 5), index=1)
    role = replace(role, scoreboard=Scoreboard(("ann", "bob"), num_actors=2))
    env = role.make_env()
    try:
        with refuses(RemudaError):
            play(actor_of(env))
        assert broken(env, 1, 0, 1, "x").args[0].count("copy 4, ") == 1
    finally:
        env.close()
