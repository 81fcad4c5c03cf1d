"""Packed rows: pixels beside other numbers take one byte, and training does not change."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pettingzoo import ParallelEnv

import remuda
from equivalence.runs import assert_same, outcome
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.envs import observation_parts
from remuda.envs.adapters.spaces import observation_converter
from remuda.envs.observation_parts import Part, packing_of
from remuda.errors import ContractError
from remuda.experience.ring import fields_of
from remuda.policies.compatibility import stream_shape
from remuda.population.ledger.lineage import read_lineage
from remuda.population.specs import policy_specs
from remuda.system.memory.packing import packed, write_numbers
from remuda.types import AgentSpec

PIXELS = spaces.Box(0, 255, (10, 10, 3), np.uint8)
HEALTH = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class Lamps(ParallelEnv):
    """Which half of its picture is bright shows each agent the right action."""

    metadata = {"name": "lamps"}  # noqa: RUF012

    def __init__(self, mixed: bool = True):
        self.possible_agents = ["red", "blue"]
        self.mixed = mixed
        self.state_space = spaces.Box(0, 1, (3,), np.float32)

    def observation_space(self, agent):
        parts = {"health": HEALTH, "picture": PIXELS, "where": spaces.Discrete(3), "speed": HEALTH}
        return spaces.Dict(parts) if self.mixed else PIXELS

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.agents, self.turn = list(self.possible_agents), 0
        return {agent: self.show(agent) for agent in self.agents}, {a: {} for a in self.agents}

    def show(self, agent):
        self.half = getattr(self, "half", {}) | {agent: int(self.rng.integers(2))}
        picture = np.zeros((10, 10, 3), np.uint8)
        picture[:, 5 * self.half[agent] :][:, :5] = self.rng.integers(200, 256)
        if not self.mixed:
            return picture
        health, speed = self.rng.normal(0.0, 3.0, (2, 2)).astype(np.float32)
        where = int(self.rng.integers(3))
        return {"health": health, "picture": picture, "where": where, "speed": speed}

    def state(self):
        return np.array([*self.half.values(), self.turn / 5], np.float32)

    def step(self, actions):
        self.turn += 1
        rewards = {agent: float(actions[agent] == self.half[agent]) for agent in self.agents}
        ends, agents = self.turn == 5, self.agents
        observations = {agent: self.show(agent) for agent in agents}
        self.agents = [] if ends else agents
        over, never = dict.fromkeys(agents, ends), dict.fromkeys(agents, False)
        return observations, rewards, never, over, {agent: {} for agent in agents}


def part(count, are_bytes=False, shape=None):
    return Part("", 0, shape or (count,), is_pixels=are_bytes, are_bytes=are_bytes)


def test_rows_are_unpacked_as_they_were_packed():
    own = [part(3), part(300, are_bytes=True), part(2), part(2), part(6, are_bytes=True)]
    critic = [part(1, are_bytes=True), part(5)]
    packing = packing_of(own, np.float32, critic)
    assert (packing.numbers, packing.size) == (319, 4 * 7 + 308 + 4 * 5 + 4)
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 1e6, (4, 319)).astype(np.float32)
    for at in (slice(3, 303), slice(307, 314)):
        rows[:, at] = rng.integers(0, 256, rows[:, at].shape)
    kept = np.zeros((4, packing.size), np.uint8)
    packing.pack(rows, kept)
    assert np.array_equal(packing.unpack(kept), rows)
    alone = packing_of(own, np.float32)  # of a policy without a centralised critic
    assert np.array_equal(alone.unpack(kept[:, : alone.size]), rows[:, : alone.numbers])
    two = kept.reshape(2, -1)  # two frames
    assert np.array_equal(packing.unpack(two), rows.reshape(2, -1))
    assert np.array_equal(packing.unpack_tensor(torch.from_numpy(two)), rows.reshape(2, -1))
    assert packing.unpack(kept[:0]).shape == (0, 319)
    floats, runs = packed(packing, kept)
    for count in (2, 3, 100, 304, 313, 319):
        out = np.zeros(400, np.float32)
        write_numbers(kept[1], floats[1], runs, out, 5, count)
        assert np.array_equal(out[5 : 5 + count], rows[1, :count])
        assert not out[5 + count :].any()


def test_a_pixel_beside_other_numbers_takes_one_byte_in_experience():
    space = observation_converter(Lamps().observation_space("red")).space
    config = load_config({"policy": {"n_frames": 2}})
    (spec,) = policy_specs(config, [AgentSpec("red", space, spaces.Discrete(2))])
    shape = stream_shape(spec)
    assert fields_of(shape, 10, 1)["observations"] == ((1, 12, 16 + 304), np.uint8)
    assert shape.num_inputs == spec.num_inputs == 2 * 307


def test_only_rows_of_floats_with_images_are_packed():
    pixels, few = part(300, are_bytes=True), part(observation_parts.LEAST_BYTES - 1, are_bytes=True)
    one_hot = Part("", 0, (300,), is_pixels=False, are_bytes=True)
    board = Part("", 0, (20, 20), is_pixels=False, are_bytes=True)
    number = part(1)
    assert packing_of([pixels], np.uint8) is None
    assert packing_of([pixels], np.uint8, [pixels]) is None
    assert packing_of([pixels], np.uint8, [number]).size == 304
    assert packing_of([few, number], np.float32) is None
    assert packing_of([number], np.float32, [pixels]) is None
    assert packing_of([one_hot, number], np.float32) is None
    assert packing_of([board, number], np.float32).size == 404
    assert packing_of([pixels, number], np.int64) is None
    assert packing_of([pixels, number], np.float64) is None


RUNS = {
    "ppo": {"algorithm": "ppo"},
    "frames": {"algorithm": "ppo", "n_frames": 2},
    "normalised": {"algorithm": "ppo", "n_frames": 2, "ppo": {"normalise_observations": True}},
    "gru": {"algorithm": "ppo", "network": {"recurrent": 8}},
    "joint": {"algorithm": "mappo", "value": {"input": "joint"}},
    "state": {"algorithm": "mappo", "n_frames": 2},
    "dqn": {"algorithm": "dqn", "n_frames": 2},
    "iqn": {"algorithm": "iqn"},
    "sequences": {"algorithm": "dqn", "network": {"recurrent": 8}, "n_frames": 2},
    "prioritised": {"algorithm": "dqn", "experience": {"prioritised": 0.6}},
    "sac": {"algorithm": "sac"},
}


def outcome_of(directory, monkeypatch, packs, policy, **settings):
    """Train, and return the weights and all counts of the run."""
    defaults = {
        "network": {"convolutions": [[2, 5, 5]], "hidden": [8]},
        "experience": {"segment_length": 4, "capacity": 4096},
        "exploration": {"decay_steps": 50},
    }
    if policy["algorithm"] in ("ppo", "mappo"):
        defaults["ppo"] = {"rollout_length": 8, "epochs": 2, "minibatches": 2}
    else:
        defaults["experience"]["learning_starts"] = 16
        defaults["batch_size"] = 8
    turns = 40 if policy["algorithm"] == "sac" else 96
    found = {
        "env": {"num_envs": 2},
        "policy": overlay(defaults, policy),
        "run": {"turns": turns, "directory": directory, "evaluate_episodes": 0},
        "schedule": "sequential",
    }
    with monkeypatch.context() as patch:
        patch.setattr(observation_parts, "LEAST_BYTES", 256 if packs else 1 << 40)
        remuda.train(Lamps, view="quiet", **overlay(found, settings))
    return outcome(directory)


def check_equal(tmp_path, monkeypatch, policy, **settings):
    """Train on packed rows, and on rows of floats, and compare the runs."""
    runs = [
        outcome_of(tmp_path / str(packs), monkeypatch, packs, policy, **settings)
        for packs in (True, False)
    ]
    learners = slice(0, 2) if "policies" in settings else slice(0, 1)
    assert_same(*runs, policies=learners, updates=4)


@pytest.mark.slow_cases("normalised", "gru", "joint", "iqn", "prioritised", "sac", "ppo")
@pytest.mark.parametrize("name", RUNS)
def test_training_equals_training_on_rows_of_floats(name, tmp_path, monkeypatch):
    env = {"options": {"mixed": name != "state"}}
    check_equal(tmp_path, monkeypatch, RUNS[name], env=env)


REPLAYS = {"algorithm": "dqn", "batch_size": 8, "experience": {"learning_starts": 16}}
SEATS = {
    "self_play": {"population": {"matchmaker": "self_play"}},
    "ids": {"env": {"agent_id": True}},
    "scripted": {"env": {"scripted": {"blue": f"{__name__}:brightest"}}},
    "dealt": {
        "env": {"scripted": {"blue": f"{__name__}:brightest"}, "agent_id": True},
        "population": {"matchmaker": "self_play"},
    },
    "unlike": {"policies": {"blue": REPLAYS}},
    "state": {"env": {"options": {"mixed": False}}, "policies": {"blue": REPLAYS}},
    "workers": {
        "env": {
            "workers": 2,
            "agent_id": True,
            "scripted": {"blue": f"{__name__}:brightest"},
        }
    },
}


def brightest(env, agent, observations, rng):
    """Play Lamps well from observations as the environment makes them."""
    assert observations.shape[1:] == env.agents[agent].observation_space.shape == (307,)
    pictures = observations[:, 2:302].reshape(-1, 10, 2, 15)
    return pictures.sum((1, 3)).argmax(1)


@pytest.mark.process
@pytest.mark.slow_cases("self_play", "ids", "scripted", "unlike", "workers")
@pytest.mark.parametrize("name", SEATS)
def test_seats_of_all_kinds_read_packed_rows(name, tmp_path, monkeypatch):
    algorithm = "dqn" if name in ("scripted", "dealt") else "mappo"
    check_equal(tmp_path, monkeypatch, {"algorithm": algorithm}, **SEATS[name])


MODES = {
    "hybrid": ({"algorithm": "ppo", "learning_mode": "hybrid"}, {}),
    "processes": ({"algorithm": "mappo"}, {"schedule": "lockstep"}),
    "published each update": ({"algorithm": "dqn", "publish": {"every": 1}}, {}),
    "births": (
        {"algorithm": "dqn"},
        {
            "population": {
                "policies": 3,
                "matchmaker": "random",
                "evolution": {"every": 6, "games": 2, "confidence": 0.0},
            },
            "run": {"turns": 200},
        },
    ),
}


@pytest.mark.process
@pytest.mark.slow_cases("hybrid", "published each update", "births")
@pytest.mark.parametrize("name", MODES)
def test_packed_rows_change_no_run_in_any_mode(name, tmp_path, monkeypatch):
    policy, settings = MODES[name]
    runs = [
        outcome_of(tmp_path / "packed", monkeypatch, True, policy, **settings),
        # in one process, since others would not see that packing is patched
        outcome_of(
            tmp_path / "floats", monkeypatch, False, policy, **settings | {"schedule": "sequential"}
        ),
    ]
    assert_same(*runs, policies=slice(0, 2), updates=4)
    if name == "births":
        lineage = read_lineage(tmp_path / "packed" / "ledger.bin")
        assert any(each.parent is not None for each in lineage)


@pytest.mark.process
@pytest.mark.slow
def test_several_actors_write_packed_rows(tmp_path):
    remuda.train(
        Lamps,
        env={"num_envs": 8},
        actor={"processes": 2},
        policy={
            "algorithm": "ppo",
            "discount": 0.5,
            "network": {"convolutions": [[4, 5, 5]], "hidden": [32]},
        },
        run={"turns": 30_000, "directory": tmp_path / "run", "evaluate_episodes": 0},
        view="quiet",
    )
    found = remuda.evaluate(tmp_path / "run", episodes=20)
    assert found.mean(0) > 4.0  # of 5; playing at random earns 2.5


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_runs_with_packed_rows_resume_as_those_with_floats(algorithm, tmp_path, monkeypatch):
    found = []
    for packs in (True, False):
        directory = tmp_path / str(packs)
        outcome_of(directory, monkeypatch, packs, {"algorithm": algorithm}, run={"turns": 43})
        with monkeypatch.context() as patch:
            patch.setattr(observation_parts, "LEAST_BYTES", 256 if packs else 1 << 40)
            remuda.train(resume=directory, run={"turns": 96}, view="quiet")
        found.append(outcome(directory))
    assert_same(*found, policies=slice(0, 2), updates=4)


class Breaks(Lamps):
    """Shows a number that is not finite in its seventh turn."""

    def show(self, agent):
        found, self.shown = super().show(agent), getattr(self, "shown", 0) + 1
        if self.shown > 14:
            found["speed"][1] = np.nan
        return found


@pytest.mark.parametrize(
    "scripted", [{}, {"red": f"{__name__}:brightest"}], ids=["plays", "watches"]
)
@pytest.mark.parametrize("population", [{}, {"matchmaker": "self_play"}], ids=["fixed", "dealt"])
def test_numbers_that_are_not_finite_are_found_in_packed_rows(scripted, population, tmp_path):
    with refuses(ContractError):
        remuda.train(
            Breaks,
            env={"num_envs": 1, "scripted": scripted},
            population=population,
            policy={"algorithm": "dqn", "network": {"hidden": [8]}},
            run={"turns": 40, "directory": tmp_path / "run", "evaluate_episodes": 0},
            schedule="sequential",
            view="quiet",
        )


def test_an_actor_is_waited_for_after_its_experience_was_lost(tmp_path):
    """`learning_starts` more steps are collected then, though the lead is shorter."""
    tree = {
        "env": {"num_envs": 2},
        "policy": {
            "algorithm": "dqn",
            "network": {"hidden": [8]},
            "batch_size": 8,
            "experience": {
                "on_full": "wait",
                "max_lead": 16,
                "learning_starts": 64,
                "capacity": 200,
                "segment_length": 4,
                "replay_ratio": 1.0,
            },
        },
        "checkpoint": {"replay": False},
        "schedule": "sequential",
    }
    directory = tmp_path / "run"
    run = {"turns": 200, "directory": directory, "evaluate_episodes": 0}
    remuda.train(Lamps, run=run, view="quiet", **tree)
    remuda.train(resume=directory, run={"turns": 400}, view="quiet")
    _, counts = outcome(directory)
    assert counts["learn"][:, 0].min() > 30
