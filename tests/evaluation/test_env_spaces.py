"""A policy that is asked from Python speaks the spaces of its environment."""

import pickle
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from pettingzoo import ParallelEnv

import remuda
from refusals import refuses
from remuda.config import overlay
from remuda.errors import UsageError
from remuda.ui.terminal.live import PlainView

NUMBERS = spaces.Box(0, 1, (2,), np.float32)
PARTS = spaces.Dict(
    position=spaces.Box(-1, 1, (2,), np.float32),
    inside=spaces.Tuple([spaces.Discrete(3, start=-1), spaces.MultiBinary(2)]),
)
ACTIONS = {
    "from -1": spaces.Discrete(3, start=-1),
    "bits": spaces.MultiBinary([2, 2]),
    "choices": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "table of choices": spaces.MultiDiscrete([[2, 3], [3, 2]]),
    "numbers": spaces.Box(100, 200, (2, 1), np.float64),
    "one number": spaces.Box(-3, 1, (), np.float32),
    "parts": spaces.Dict(
        go=spaces.Discrete(2, start=5), say=spaces.Tuple([spaces.MultiBinary(2)] * 2)
    ),
    "parts of numbers": spaces.Tuple(
        [spaces.Box(0, 5, (2,), np.float32), spaces.Dict(a=spaces.Box(-9, 9, (), np.float64))]
    ),
}
OBSERVATIONS = {
    "state": spaces.Discrete(4, start=-2),
    "states": spaces.MultiDiscrete([3, 4], start=[0, 2]),
    "bits": spaces.MultiBinary(5),
    "parts": PARTS,
    "tuple": spaces.Tuple([spaces.Discrete(2), PARTS]),
    "bytes": spaces.Box(0, 255, (2, 3), np.uint8),
    "half": spaces.Box(-1, 1, (3,), np.float16),
    "nothing": spaces.Box(-1, 1, (0,), np.float32),
}


MASKED = spaces.Dict(observation=NUMBERS, action_mask=spaces.MultiBinary(3))
MASKED_PARTS = spaces.Dict(a=NUMBERS, b=spaces.Discrete(3), action_mask=spaces.MultiBinary(5))
CHOICES = spaces.MultiDiscrete([2, 3], start=[1, 1])
KINDS = {
    **{f"acts {name}": (NUMBERS, space) for name, space in ACTIONS.items()},
    **{f"observes {name}": (space, spaces.Discrete(2)) for name, space in OBSERVATIONS.items()},
    "both": (OBSERVATIONS["tuple"], ACTIONS["parts"]),
    "choices": (PARTS, ACTIONS["choices"]),
    "mask": (NUMBERS, ACTIONS["from -1"]),
    "mask of parts": (PARTS, ACTIONS["parts"]),
    "mask of bits": (NUMBERS, spaces.MultiBinary(2)),
    "mask in it": (MASKED, ACTIONS["from -1"]),
    "mask in its parts": (MASKED_PARTS, CHOICES),
}
POLICIES = {
    "frames": ("both", {"n_frames": 3}),
    "recurrent": ("both", {"network": {"hidden": [8], "recurrent": 8}}),
    "frames and masks": ("mask of parts", {"n_frames": 2}),
    "dqn": ("choices", {"algorithm": "dqn"}),
    "iqn": ("observes state", {"algorithm": "iqn"}),
}
EPISODE = 4


class Asked(gymnasium.Env):
    """Keeps, by episode, what it showed and what was done then."""

    episodes: ClassVar[list] = []

    def __init__(self, kind):
        self.kind, (self.observation_space, self.action_space) = kind, KINDS[kind]
        self.rng = np.random.default_rng(0)
        self.episode = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.observation_space.seed(seed)
        self.episode = []
        self.episodes.append(self.episode)
        return self.show()

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.episode.append((*self.shown, action))
        observation, info = self.show()
        return observation, 1.0, len(self.episode) == EPISODE, False, info

    def show(self):
        observation, mask = self.observation_space.sample(), None
        if self.kind.startswith("mask in"):
            size = 5 if "parts" in self.kind else 3
            observation["action_mask"] = self.bits(size) if size == 3 else self.bits(2, 3)
        elif self.kind.startswith("mask"):
            mask = {
                "mask": lambda: self.bits(3),
                "mask of parts": lambda: {"go": self.bits(2), "say": (self.bits(2, 2),) * 2},
                "mask of bits": lambda: self.bits(2, 2),
            }[self.kind]()
        self.shown = observation, mask
        return observation, {} if mask is None else {"action_mask": mask}

    def bits(self, *sizes):
        """For each choice so many of 0 and 1, of which one is 1."""
        rows = [self.rng.integers(2, size=size).astype(np.int8) for size in sizes]
        for row in rows:
            row[self.rng.integers(len(row))] = 1
        return np.concatenate(rows)


class Pair(ParallelEnv):
    """Two agents of unlike spaces, each of which plays `Asked`."""

    metadata: ClassVar[dict] = {"name": "pair"}

    def __init__(self):
        self.envs = {"first": Asked("both"), "second": Asked("acts from -1")}
        self.possible_agents, self.agents = list(self.envs), []

    def observation_space(self, agent):
        return self.envs[agent].observation_space

    def action_space(self, agent):
        return self.envs[agent].action_space

    def reset(self, seed=None, options=None):
        self.agents = list(self.envs)
        shown = {name: env.reset(seed=seed) for name, env in self.envs.items()}
        return {k: v for k, (v, _) in shown.items()}, {k: v for k, (_, v) in shown.items()}

    def step(self, actions):
        told = {name: env.step(actions[name]) for name, env in self.envs.items()}
        found = tuple({name: each[i] for name, each in told.items()} for i in range(5))
        if found[2]["first"]:
            self.agents = []
        return found


def trained(directory, make, policy=None, **options):
    base = {
        "algorithm": "ppo",
        "network": {"hidden": [8]},
        "experience": {"segment_length": EPISODE, "learning_starts": 40, "capacity": 200},
        "batch_size": 16,
    }
    run = {"turns": 40, "directory": directory, "evaluate_episodes": 4, "log_every": 3600}
    result = remuda.train(
        make,
        env={"num_envs": 1, "options": options},
        policy=overlay(base, policy or {}),
        schedule="sequential",
        run=run,
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )
    return remuda.load(result)


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    alike = np.shape(one) == np.shape(other) and type(one) is type(other)
    return (
        alike
        and getattr(one, "dtype", None) == getattr(other, "dtype", None)
        and np.all(one == other)
    )


def batched(items):
    """Values as `gymnasium.vector` batches them."""
    if isinstance(items[0], dict):
        return {key: batched([item[key] for item in items]) for key in items[0]}
    if isinstance(items[0], tuple):
        return tuple(batched([item[i] for item in items]) for i in range(len(items[0])))
    return None if items[0] is None else np.stack(items)


def check(policy, env, episodes):
    """Compare what it chooses with what was played, one by one and as a batch of streams."""
    assert policy.observation_space == env.observation_space
    assert policy.action_space == env.action_space
    for episode in episodes:
        policy.begin()
        for observation, mask, action in episode:
            found = policy.act(observation, mask=mask)
            assert same(found, action), f"{found!r}, and {action!r} was played"
    state = policy.initial_state(len(episodes))
    space = batch_space(policy.action_space, len(episodes))
    for turn in zip(*episodes, strict=True):
        observations, masks, actions = zip(*turn, strict=True)
        found = policy.act(batched(observations), mask=batched(masks), state=state)
        assert space.contains(found), f"{found!r} is not in {space}"
        assert same(found, batched(actions)), f"{found!r}, and {actions!r} were played"
    flat = policy.flatten(batched(observations))
    assert flat.shape[0] == len(episodes)
    assert same(policy.flatten(observations[0]), flat[0])


def check_recorded(run, agent, play, path):
    """Compare recorded episodes with those that the environments played meanwhile."""
    Asked.episodes.clear()
    run.record(play, to=path)
    recorded = remuda.Trajectories.load(path)
    steps, spaces_of = recorded[agent], recorded.spaces(agent)
    whole = [each for each in Asked.episodes if len(each) == EPISODE]
    shown, _, actions = zip(*(step for each in whole[:play] for step in each), strict=True)
    if isinstance(shown[0], dict) and "action_mask" in shown[0]:
        shown = [{k: v for k, v in each.items() if k != "action_mask"} for each in shown]
        shown = [each.get("observation", each) for each in shown]
    assert same(steps.observations, batched(shown))
    assert same(steps.actions, batched(actions))
    assert steps.lengths.tolist() == [EPISODE] * play
    rows = spaces_of.policy_actions(steps.actions)
    shape = (len(rows), *(recorded.spec_of(agent).action_space.shape or ()))
    back = spaces_of.actions(rows.astype(rows.dtype).reshape(shape), single=False)
    assert same(back, steps.actions)


SETTINGS = {**{kind: (kind, {}) for kind in KINDS}, **POLICIES}


@pytest.mark.slow_cases(
    "acts bits",
    "acts choices",
    "acts from -1",
    "acts numbers",
    "acts one number",
    "acts parts",
    "acts parts of numbers",
    "acts table of choices",
    "both",
    "choices",
    "dqn",
    "frames",
    "frames and masks",
    "iqn",
    "mask",
    "mask in it",
    "mask in its parts",
    "mask of bits",
    "mask of parts",
    "observes bits",
    "observes bytes",
    "observes half",
    "observes nothing",
    "observes parts",
    "observes states",
    "observes tuple",
    "recurrent",
)
@pytest.mark.parametrize("setting", SETTINGS)
def test_act_returns_what_the_environment_gets_in_training(setting, tmp_path):
    kind, policy = SETTINGS[setting]
    Asked.episodes.clear()
    run = trained(tmp_path / "run", Asked, policy, kind=kind)
    whole = [episode for episode in Asked.episodes if len(episode) == EPISODE]
    check(run["agent_0"], Asked(kind), whole[-3:])
    copied = pickle.loads(pickle.dumps(run["agent_0"]))
    check(copied, Asked(kind), whole[-3:])
    check_recorded(run, "agent_0", 3, tmp_path / "data.npz")


def test_agents_of_pettingzoo_have_spaces_of_their_own(tmp_path):
    Asked.episodes.clear()
    run = trained(tmp_path / "run", Pair)
    whole = [episode for episode in Asked.episodes if len(episode) == EPISODE]
    env = Pair()
    check(run["first"], env.envs["first"], whole[-6::2])
    check(run["second"], env.envs["second"], whole[-5::2])


def test_a_vector_env_is_played_in_arrays(both):
    """`remuda play` and exploiters seat policies in a `VectorEnv`, which knows no other spaces."""
    player = both.player
    inside = remuda.Policy(player.spec, player.snapshot, player.agent.in_arrays)
    observations = batched([both.observation_space.sample() for _ in range(3)])
    actions = inside.act(both.flatten(observations))
    own = both.act(observations)
    assert actions.shape == (3, 5)
    assert (actions[:, 0] + 5 == own["go"]).all()
    assert (actions[:, 1:3] == own["say"][0]).all()


@pytest.mark.slow
def test_onnx_files_have_the_environment_s_actions(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    for kind, shape in (("acts from -1", ()), ("acts choices", (2,)), ("both", (5,))):
        Asked.episodes.clear()
        policy = trained(tmp_path / kind, Asked, kind=kind)["agent_0"]
        session = onnxruntime.InferenceSession(policy.to_onnx(tmp_path / f"{kind}.onnx"))
        observations = batched([policy.observation_space.sample() for _ in range(9)])
        found = session.run(None, {"observation": policy.flatten(observations)})[0]
        actions = policy.act(observations)
        if kind == "both":
            actions = np.concatenate([actions["go"][:, None], *actions["say"]], 1)
        assert found.shape == (9, *shape)
        assert (found == actions).all()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("both") / "run", Asked, kind="both")["agent_0"]


@pytest.mark.parametrize(
    "observation",
    [
        0,
        (0,),
        (5, PARTS.sample()),
        (0, {"position": np.zeros(2)}),
        (np.zeros(3, int), PARTS.sample()),
        (0, PARTS.sample() | {"position": np.zeros(3)}),
        np.zeros(3),
    ],
)
def test_an_observation_of_another_space_is_refused(observation, both):
    before = both.remembered
    with refuses(UsageError):
        both.act(observation)
    assert both.remembered is before is None or same(vars(both.remembered), vars(before))


def test_flat_observations_are_taken_too(both):
    observations = [both.observation_space.sample() for _ in range(3)]
    flat = both.flatten(batched(observations))
    assert same(both.act(flat), both.act(batched(observations)))
    assert same(both.act(flat[0]), both.act(observations[0]))
