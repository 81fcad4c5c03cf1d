"""A trained policy chooses what an actor of its run chooses."""

import copy
import pickle
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

import remuda
from masked_games import Doors
from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import UsageError
from remuda.evaluate import actor_for_play
from remuda.saved_weights import load_run
from remuda.ui.live import PlainView
from support import Tape

SMALL = {
    "schedule": "sequential",
    "env": {"num_envs": 2},
    "policy": {
        "network": {"hidden": (16, 16)},
        "iqn": {"quantiles": 4, "cosines": 8},
        "batch_size": 16,
        "experience": {"learning_starts": 60, "capacity": 300, "segment_length": 10},
        "exploration": {"decay_steps": 100, "end": 0.3},
    },
    "run": {"turns": 150, "evaluate_episodes": 0, "log_every": 3600},
    "checkpoint": {"evaluate_episodes": 0},
}
PPO = {"algorithm": "ppo", "ppo": {"rollout_length": 20, "normalise_observations": True}}
Q = {"batch_size": 16, "experience": {"learning_starts": 60}}


class Push(Tape):
    """Two numbers are chosen, within bounds."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        space = Box(-0.5, 0.5, (2,), np.float32)
        self.agents = tuple(
            remuda.types.AgentSpec(agent.name, agent.observation_space, space)
            for agent in self.agents
        )

    def act(self, agent, actions):
        super().act(agent, actions.sum(1))


class Locks(Doors):
    """Two choices are made, both of them with masks."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs, choices=(2, 3))


SETTINGS = {
    "uint8": ("treasure_hunt", PPO),
    "dqn": ("treasure_hunt", {"algorithm": "dqn"}),
    "iqn": ("treasure_hunt", {"algorithm": "iqn"}),
    "ppo": ("treasure_hunt", PPO),
    "dqn with frames": ("treasure_hunt", {"algorithm": "dqn", "n_frames": 3}),
    "ppo with frames": ("treasure_hunt", PPO | {"n_frames": 2}),
    "noisy": ("treasure_hunt", {"algorithm": "iqn", "network": {"noisy": True}}),
    "recurrent": ("support:Recall", PPO | {"network": {"recurrent": 8}}),
    "recurrent dqn": ("treasure_hunt", {"algorithm": "dqn", "network": {"recurrent": 8}}),
    "recurrent iqn": (
        "treasure_hunt",
        {"algorithm": "iqn", "network": {"recurrent": 8}, "n_frames": 2},
    ),
    "towers": ("treasure_hunt", PPO | {"network": {"shared": False}}),
    "masked": ("connect_four", PPO),
    "masked dqn": ("connect_four", {"algorithm": "dqn"}),
    "masked choices": ("test_trained:Locks", {"algorithm": "iqn"}),
    "own ppo": ("support:Tape", PPO | {"network": {"module": "policies.own_networks:small"}}),
    "own dqn": (
        "support:Tape",
        {"algorithm": "dqn", "network": {"module": "policies.own_networks:Wide"}, "n_frames": 2},
    ),
    "own iqn": (
        "support:Tape",
        {"algorithm": "iqn", "network": {"module": "policies.own_networks:small", "hidden": ()}},
    ),
    "convolving dqn": (
        "treasure_hunt",
        {"algorithm": "dqn", "n_frames": 2, "network": {"convolutions": ((4, 3, 1),)}},
    ),
    "convolving iqn": (
        "treasure_hunt",
        {"algorithm": "iqn", "network": {"convolutions": ((4, 3, 1),)}},
    ),
    "continuous": ("test_trained:Push", PPO),
}


def trained(directory, game, policy, **tree):
    tree = remuda.config.overlay(SMALL, {"policy": policy} | tree)
    for name in ("experience", "exploration", "batch_size") if "ppo" in policy else ():
        tree["policy"].pop(name, None)
    return remuda.load(
        remuda.train(game, config=tree, run={"directory": directory}, view=PlainView())
    )


@pytest.mark.parametrize("explores", [False, True], ids=["greedy", "exploring"])
@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting != "uint8"])
def test_act_chooses_what_the_actor_chooses(setting, explores, tmp_path):
    game, policy = SETTINGS[setting]
    run = trained(tmp_path / "run", game, policy)
    config, snapshots = load_run(RunDirectory.open(run.path))
    if policy["algorithm"] != "ppo":  # so short a training prefers one action everywhere
        draw = np.random.default_rng(1)
        for name, snapshot in snapshots.items():
            noise = draw.normal(0.0, 0.3, snapshot.weights.shape).astype(np.float32)
            snapshots[name] = replace(snapshot, weights=snapshot.weights + noise)
    actor = actor_for_play(config, snapshots, 5, seed=3, sampled=explores)
    seats, compared, episodes = actor.seats, [], set()
    players = {name: run[name].player for name in run}
    asked = {
        name: remuda.Policy(player.spec, snapshots[name], player.agent)
        for name, player in players.items()
    }
    states = {name: asked[name].initial_state(5) for name in asked}
    choose, begin, outcome = seats.choose, seats.begin, seats.outcome

    def watched_choose(group, random=None):
        """Ask the policy first, with a copy of the random numbers that the actor will use."""
        expected = {}
        for agent in seats.groups[group]:
            seat = seats.seats[agent]
            masks = seats._choices[agent].masks
            before, rng = states[seat.policy], copy.deepcopy(seat.random)
            chosen, after = asked[seat.policy].act_from(
                before,
                seats._observations[agent].copy(),
                mask=masks.copy() if masks.shape[1] else None,
                deterministic=not explores,
                rng=rng,
            )
            acts = seats._acted_of[agent]
            for field in ("frames", "starts", "recurrent_state"):
                getattr(before, field)[acts] = getattr(after, field)[acts]
            expected[agent] = chosen, acts.copy()
        choose(group, random)
        for agent, (chosen, acts) in expected.items():
            choice = seats._choices[agent]
            taken = seats.seats[agent].selector.actions.within_bounds(choice.actions)
            assert (taken.reshape(choice.shape)[acts] == chosen[acts]).all()
            compared.append(chosen[acts])

    def watched_begin(over):
        begin(over)
        episodes.update(np.flatnonzero(over).tolist())
        for state in states.values():
            state.begin(over)

    def watched_outcome(result):
        outcome(result)
        ended = result.terminated | result.truncated
        for agent, seat in enumerate(seats.seats):
            states[seat.policy].begin(ended[:, agent])

    seats.choose, seats.begin, seats.outcome = watched_choose, watched_begin, watched_outcome
    for _ in range(60):
        actor.turn()
    actor.finish()
    choices = np.concatenate(compared)
    assert len(choices) >= 150
    assert len(np.unique(choices)) > 1, "always the same: nothing is compared"


@pytest.mark.parametrize("setting", ["dqn", "iqn", "ppo", "noisy", "recurrent", "continuous"])
def test_its_module_gives_what_it_chooses_by(setting, tmp_path):
    policy = trained(tmp_path / "run", *SETTINGS[setting])["agent_0"]
    module, space = policy.module(), policy.observation_space
    space.seed(0)
    seen = np.stack([space.sample() for _ in range(50)])
    before = np.zeros((50, policy.n_frames - 1, *space.shape), seen.dtype)
    stacked = torch.as_tensor(np.concatenate((before, seen[:, None]), 1))
    outputs = module(stacked if policy.n_frames > 1 else torch.as_tensor(seen))
    if setting == "recurrent":
        outputs, after = outputs
        state = policy.act_from(policy.initial_state(50), seen)[1]
        assert after.detach().numpy() == pytest.approx(state.recurrent_state, abs=1e-6)
    outputs, chosen = outputs.detach().numpy(), policy.act(seen)
    if setting == "continuous":
        assert np.clip(outputs[:, :2], -0.5, 0.5) == pytest.approx(chosen, abs=1e-6)
    else:
        ordered = np.sort(outputs, 1)
        clear = ordered[:, -1] - ordered[:, -2] > 1e-6
        assert clear.sum() > 25
        assert (outputs.argmax(1) == chosen)[clear].all()
    assert set(dict(module.named_parameters())) | set(dict(module.named_buffers())) == set(
        policy.weights()
    )
    module(stacked)[0].sum().backward()
    assert any(values.grad is not None for values in module.parameters())
    with torch.no_grad():
        for values in module.parameters():
            values.zero_()
    policy.begin()
    assert (policy.act(seen) == chosen).all(), "the module's weights are not its own"


def test_one_observation_or_a_batch(tmp_path):
    policy = trained(tmp_path / "run", "support:Tape", SETTINGS["dqn"][1])["agent_0"]
    batch = policy.observation_space.sample() + np.arange(35, dtype=np.float32).reshape(7, 5)
    chosen = policy.act(batch)
    assert chosen.shape == (7,)
    assert chosen.dtype == policy.action_space.dtype
    assert policy.action_space.contains(chosen[0])
    singles = []
    for row in batch:  # each is the first of an episode
        policy.begin()
        singles.append(int(policy.act(row)))
    assert singles == chosen.tolist()
    assert policy.act(batch[0].tolist()).shape == ()


def test_without_a_state_it_remembers_by_itself(tmp_path):
    policy = trained(tmp_path / "run", *SETTINGS["recurrent"])["agent_0"]
    assert policy.is_recurrent
    cues = np.eye(3, dtype=np.float32)[:2]
    state, kept = policy.initial_state(2), []
    for _ in range(3):
        chosen, state = policy.act_from(state, cues)
        assert (policy.act(cues) == chosen).all()
        kept.append(state.recurrent_state)
    assert not (kept[0] == kept[1]).all()
    before = policy.initial_state(2)
    policy.act_from(before, cues)
    assert (before.recurrent_state == 0.0).all(), "it was changed"
    policy.begin([True, False])
    state.begin([True, False])
    assert (state.recurrent_state[0] == 0.0).all()
    assert (state.recurrent_state[1] != 0.0).any()
    assert (policy.act(cues) == policy.act_from(state, cues)[0]).all()
    assert policy._own.recurrent_state == pytest.approx(
        policy.act_from(state, cues)[1].recurrent_state, abs=0.0
    )


@pytest.mark.parametrize(
    ("setting", "arguments", "words"),
    [
        ("dqn", {"observation": np.zeros(3)}, r"of shape \(5,\), or a batch .* of shape \(3,\)"),
        ("dqn", {"observation": np.full(5, np.nan)}, "observation 0 is not finite"),
        ("dqn", {"observation": ["a"] * 5}, "sees numbers"),
        ("uint8", {"observation": np.full((1,), 0.5)}, "of uint8; this is of float64, and holds"),
        ("uint8", {"observation": np.full((1,), 256)}, "of uint8; this is of int64, and holds"),
        ("dqn", {"observation": np.zeros(5), "mask": [True] * 4}, "trained without masks"),
        ("dqn", {"observation": np.zeros(5), "deterministic": False, "epsilon": 2}, "a share"),
        ("masked", {"observation": np.zeros((2, 6, 7))}, "which of 7 actions .* mask="),
        ("masked", {"observation": np.zeros((2, 6, 7)), "mask": [1, 0]}, r"shape \(1, 7\)"),
        ("masked", {"observation": np.zeros((2, 6, 7)), "mask": [False] * 7}, "allows nothing"),
        ("dqn", {"observation": np.zeros(5), "epsilon": 0.3}, "give deterministic=False too"),
    ],
)
def test_what_does_not_fit_is_told(setting, arguments, words, tmp_path):
    game, policy = SETTINGS[setting]
    run = trained(tmp_path / "run", "support:Tape" if setting == "dqn" else game, policy)
    asked = run["agent_0"]
    if setting == "uint8":
        value = arguments["observation"][0]
        arguments["observation"] = np.full(asked.observation_space.shape, value)
    with pytest.raises(UsageError, match=words):
        asked.act(**arguments)
    with pytest.raises(ValueError, match=words):
        asked.act(**arguments)


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """By setting, a trained policy."""
    made = {}

    def get(setting):
        if setting not in made:
            directory = tmp_path_factory.mktemp("trained") / "run"
            made[setting] = trained(directory, *SETTINGS[setting])["agent_0"]
        return made[setting]

    return get


def observations_of(policy, count, seed=0):
    policy.observation_space.seed(seed)
    return np.stack([policy.observation_space.sample() for _ in range(count)])


KINDS = ["ppo", "dqn with frames", "recurrent"]


@pytest.mark.parametrize("how", ["copied", "pickled"])
@pytest.mark.parametrize("setting", KINDS)
def test_a_copy_chooses_as_it_does(setting, how, policies):
    """It acted on zeros: the arrays that it and its network shared were two."""
    policy = policies(setting)
    seen = observations_of(policy, 60)
    policy.begin()
    policy.act(seen[0])
    other = copy.deepcopy(policy) if how == "copied" else pickle.loads(pickle.dumps(policy))
    for one in seen:
        assert (other.act(one) == policy.act(one)).all()
        assert (other._own.recurrent_state == policy._own.recurrent_state).all()
        assert (other._own.frames == policy._own.frames).all()


@pytest.mark.parametrize("setting", KINDS)
def test_what_is_refused_changes_nothing(setting, policies):
    policy = policies(setting)
    seen = observations_of(policy, 3).astype(np.float64)
    policy.begin()
    policy.act(seen)
    state = policy.initial_state(3)
    before = copy.deepcopy((policy._own, state))
    for arguments in (
        {"observation": seen * np.nan},
        {"observation": seen, "epsilon": 2.0},
        {"observation": seen, "epsilon": 2.0, "deterministic": False},
        {"observation": seen, "rng": "a"},
        {"observation": seen, "mask": [True] * 3},
        {"observation": seen[:, :1], "state": state},
        {"observation": seen[:2], "state": state},
        {"observation": seen * np.nan, "state": state},
    ):
        with pytest.raises((UsageError, TypeError)):
            policy.act(**arguments)
    for was, now in zip(before, (policy._own, state), strict=True):
        for field in ("frames", "starts", "recurrent_state"):
            assert (getattr(was, field) == getattr(now, field)).all()


def test_a_state_of_another_policy_is_refused(policies):
    """Compiled code wrote beyond its frames, and the process died."""
    other = policies("recurrent").initial_state(64)
    policy = policies("dqn with frames")
    with pytest.raises(UsageError, match=r"the state is of another policy: its frames are float32"):
        policy.act_from(other, observations_of(policy, 64))


def test_only_streams_that_there_are_begin(policies):
    policy = policies("recurrent")
    policy.act(observations_of(policy, 3))
    with pytest.raises(UsageError, match=r"there are 3 streams, .* of \(2,\)"):
        policy.begin([True, False])


@pytest.mark.parametrize("setting", [*KINDS, "masked", "continuous"])
def test_a_batch_of_none(setting, policies):
    policy = policies(setting)
    none = np.zeros((0, *policy.observation_space.shape), policy.observation_space.dtype)
    mask = np.zeros((0, policy.mask_size), bool) if policy.mask_size else None
    assert policy.act(none, mask=mask).shape == (0, *policy.action_space.shape)


def test_several_threads_may_ask(policies):
    policy = policies("ppo")
    seen = observations_of(policy, 100)
    expected = policy.act(seen).tolist()
    wrong, interval = [], sys.getswitchinterval()

    def ask():
        found = [int(policy.act(one)) for one in seen for _ in range(3)]
        wrong.extend(a != b for a, b in zip(found, np.repeat(expected, 3), strict=True))

    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(wrong) == 1200
    assert not any(wrong)


def test_batches_of_many_sizes_take_no_memory(policies):
    policy = policies("ppo")
    for count in range(1, 60):
        policy.act(observations_of(policy, 1).repeat(count, 0))
    assert len(policy._stack._rooms) <= 16


def test_a_distribution_explores_whatever_the_exploration_rate_is(tmp_path):
    """With `exploration.end` 0, which has no effect on PPO, it played greedily in training."""
    setting = SETTINGS["ppo"][1] | {"exploration": {"start": 0.0, "end": 0.0}}
    tree = remuda.config.overlay(SMALL, {"policy": setting})
    for name in ("experience", "batch_size"):
        tree["policy"].pop(name)
    result = remuda.train("support:Tape", config=tree, run={"directory": tmp_path / "run"})
    assert result.record.policies["agent_0"].epsilon > 0.0
    policy = remuda.load(result)["agent_0"]
    drawn = policy.act(np.zeros((200, 5), np.float32), deterministic=False, rng=1)
    assert len(set(drawn.tolist())) > 1


@pytest.mark.parametrize("arguments", [{}, {"deterministic": False}])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_distribution_has_no_exploration_rate(rate, arguments, policies):
    """With 0.0 it was greedy, and any other rate was as 1."""
    policy = policies("ppo")
    with pytest.raises(UsageError, match=r"drawing from its distribution, .* leave epsilon out"):
        policy.act(observations_of(policy, 2), epsilon=rate, **arguments)


def test_a_mask_must_allow_something_in_each_choice(policies):
    policy = policies("masked choices")
    seen = observations_of(policy, 2)
    both = [[True, True, True, False, True], [True, False, False, False, False]]
    with pytest.raises(UsageError, match=r"mask 1 allows nothing in one of the choices of Multi"):
        policy.act(seen, mask=both)
    both[1][4] = True
    assert policy.act(seen, mask=both)[1].tolist() == [0, 2]


def test_starts_of_a_state_begin_its_memory_too(policies):
    """Frames were cleared, and the recurrent state went on."""
    policy = policies("recurrent")
    cues = observations_of(policy, 3)
    _, state = policy.act_from(policy.initial_state(3), cues)
    state.starts[:] = [True, False, True]
    begun = state.copy()
    begun.begin(state.starts)
    found, expected = (policy.act_from(each, cues)[1] for each in (state, begun))
    assert (found.recurrent_state == expected.recurrent_state).all()
    assert not (found.recurrent_state[1] == found.recurrent_state[0]).all()
    assert state.recurrent_state.any(), "the state that was given was changed"


def test_a_shallow_copy_shares_nothing_that_changes(policies):
    policy = policies("recurrent")
    cues = observations_of(policy, 2)
    policy.begin()
    policy.act(cues)
    other = copy.copy(policy)
    before = other._own.copy(), other._rng.bit_generator.state
    policy.act(cues, deterministic=False)
    assert (other._own.recurrent_state == before[0].recurrent_state).all()
    assert not (policy._own.recurrent_state == before[0].recurrent_state).all()
    assert other._rng.bit_generator.state == before[1] != policy._rng.bit_generator.state


def test_a_batch_of_none_is_forgotten_and_nothing_else(policies):
    policy = policies("recurrent")
    cues = observations_of(policy, 3)
    policy.act(cues)
    before = policy._own.copy()
    assert policy.act(cues[:0]).shape == (0,)
    assert len(policy._own) == 3
    assert (policy._own.recurrent_state == before.recurrent_state).all()


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_policies_of_several_threads_leave_torch_as_it_was(policies, monkeypatch, three_threads):
    """The second one took the first one's single thread for what had been set, and left it so."""
    inside, asks, found = threading.Event(), threading.Event(), {}
    slow, other = copy.deepcopy(policies("ppo")), policies("dqn with frames")
    seen = observations_of(slow, 2), observations_of(other, 2)
    room = slow._stack.room

    def waits(*sizes):
        inside.set()
        asks.wait(10.0)
        time.sleep(0.2)  # it asks meanwhile
        found["during"] = torch.get_num_threads()
        return room(*sizes)

    def ask():
        inside.wait(10.0)
        asks.set()
        other.act(seen[1])
        found["after"] = torch.get_num_threads()

    monkeypatch.setattr(slow._stack, "room", waits)
    thread = threading.Thread(target=ask)
    thread.start()
    slow.act(seen[0])
    thread.join()
    assert found == {"during": 1, "after": 3}
    assert torch.get_num_threads() == 3
