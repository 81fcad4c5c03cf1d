"""A trained policy chooses what an actor of its run chooses."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import remuda
from refusals import refuses
from remuda.envs.recorded import Wrapped
from remuda.errors import UsageError
from remuda.evaluation.evaluate import actor_for_play
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from trained_policies import SETTINGS, trained


class Watched(Wrapped):
    """Keeps, by agent, what was observed and allowed last, and what was done."""

    def __init__(self, game):
        super().__init__(game)
        self.observed, self.masks, self.acts = {}, {}, {}

    def observe(self, agent, out):
        self.game.observe(agent, out)
        self.observed[agent] = out.copy()

    def mask(self, agent, out):
        self.game.mask(agent, out)
        self.masks[agent] = out.copy()

    def act(self, agent, actions):
        self.acts[agent] = actions.copy()
        self.game.act(agent, actions)


@pytest.mark.slow_cases(
    "continuous-exploring",
    "continuous-greedy",
    "convolving dqn-exploring",
    "convolving dqn-greedy",
    "convolving iqn-exploring",
    "convolving iqn-greedy",
    "dqn with frames-exploring",
    "dqn with frames-greedy",
    "dqn-exploring",
    "iqn-exploring",
    "iqn-greedy",
    "masked choices-exploring",
    "masked choices-greedy",
    "masked dqn-exploring",
    "masked dqn-greedy",
    "masked-exploring",
    "masked-greedy",
    "noisy-exploring",
    "noisy-greedy",
    "own dqn-exploring",
    "own dqn-greedy",
    "own iqn-exploring",
    "own iqn-greedy",
    "own ppo-exploring",
    "own ppo-greedy",
    "ppo with frames-exploring",
    "ppo with frames-greedy",
    "ppo-exploring",
    "ppo-greedy",
    "recurrent dqn-exploring",
    "recurrent dqn-greedy",
    "recurrent iqn-exploring",
    "recurrent iqn-greedy",
    "recurrent-exploring",
    "recurrent-greedy",
    "towers-exploring",
    "towers-greedy",
)
@pytest.mark.parametrize("explores", [False, True], ids=["greedy", "exploring"])
@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting != "uint8"])
def test_act_chooses_what_the_actor_chooses(setting, explores, tmp_path):
    game, policy = SETTINGS[setting]
    # One that remembers learns late to do this here and that there.
    turns = 3000 if setting == "recurrent" else 150
    run = trained(tmp_path / "run", game, policy, run={"turns": turns})
    spec, snapshots = load_run(RunDirectory.open(run.path))
    if policy["algorithm"] != "ppo":  # so short a training prefers one action everywhere
        draw = np.random.default_rng(1)
        for name, snapshot in snapshots.items():
            noise = draw.normal(0.0, 0.3, snapshot.weights.shape).astype(np.float32)
            snapshots[name] = replace(snapshot, weights=snapshot.weights + noise)
    actor = actor_for_play(spec, snapshots, 5, seed=3, sampled=explores, wrap=Watched)
    env, seats, compared, episodes = actor.env, actor.seats, [], set()
    players = {name: run[name].player for name in run}
    asked = {
        name: remuda.Policy(player.spec, snapshots[name], player.agent)
        for name, player in players.items()
    }
    states = {name: asked[name].initial_state(5) for name in asked}
    choose, act, begin, outcome = seats.choose, seats.act, seats.begin, seats.outcome
    expected = {}

    def watched_choose(group, random=None):
        """Ask the policy first, with a copy of the random numbers that the actor will use."""
        for agent in seats.groups[group]:
            seat = seats.seats[agent]
            before, rng = states[seat.policy], copy.deepcopy(seat.rng)
            chosen, after = asked[seat.policy].act_from(
                before,
                env.observed[agent],
                mask=env.masks.get(agent),
                deterministic=not explores,
                rng=rng,
            )
            acts = seats.acted[:, agent].copy()
            for field in ("frames", "starts", "recurrent_state"):
                getattr(before, field)[acts] = getattr(after, field)[acts]
            expected[agent] = chosen, acts
        choose(group, random)

    def watched_act(agent):
        act(agent)
        chosen, acts = expected.pop(agent)
        assert (env.acts[agent][acts] == chosen[acts]).all()
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

    seats.choose, seats.act = watched_choose, watched_act
    seats.begin, seats.outcome = watched_begin, watched_outcome
    for _ in range(60):
        actor.turn()
    actor.finish()
    choices = np.concatenate(compared)
    assert len(choices) >= 150
    assert len(np.unique(choices)) > 1, "always the same: nothing is compared"


@pytest.mark.slow_cases("continuous", "dqn", "noisy", "ppo", "recurrent")
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
        assert 0.5 * np.clip(outputs[:, :2], -1.0, 1.0) == pytest.approx(chosen, abs=1e-6)
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


@pytest.mark.slow
@pytest.mark.parametrize("recurrent", [0, 8])
@pytest.mark.parametrize("normalise", [False, True], ids=["plain", "units"])
def test_its_module_values_states_by_what_is_paid_from_there(recurrent, normalise, tmp_path):
    ppo = {"normalise_values": normalise, "rollout_length": 64}
    own = {"algorithm": "ppo", "discount": 0.5, "reward_scale": 1.0, "ppo": ppo}
    own |= {"network": {"hidden": [16], "recurrent": recurrent}, "learning_rate": 3e-3}
    run = {"turns": 8000}
    policy = trained(tmp_path / "run", "gymnasium:CartPole-v1", own, run=run)["agent_0"]
    module, begins = policy.module(), torch.zeros(3, 4)
    # Each step pays 1, and no episode is over soon: a sum of 1, 1/2, 1/4 and so on.
    values = module.state_values(begins)
    assert values.detach().numpy() == pytest.approx(np.full(3, 2.0), rel=0.15)
    values.sum().backward()
    assert any(parameter.grad is not None for parameter in module.parameters())
    if recurrent:
        assert torch.equal(module.state_values(begins, torch.zeros(3, recurrent)), values)
        assert not torch.equal(module.state_values(begins, torch.ones(3, recurrent)), values)


@pytest.mark.slow_cases("iqn")
@pytest.mark.parametrize("setting", ["dqn", "iqn"])
def test_a_q_learner_has_no_values_of_states(setting, tmp_path):
    policy = trained(tmp_path / "run", *SETTINGS[setting])["agent_0"]
    seen = torch.zeros(1, policy.n_frames, *policy.observation_space.shape)
    with refuses(UsageError):
        policy.module().state_values(seen)


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
    assert type(policy.act(batch[0].tolist())) is int


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
    assert policy.remembered.recurrent_state == pytest.approx(
        policy.act_from(state, cues)[1].recurrent_state, abs=0.0
    )


@pytest.mark.slow_cases(
    "dqn-arguments0-of shape \\\\(5,\\\\), or a batch .* of shape \\\\(3,\\\\)",
    "dqn-arguments1-observation 0 is not finite",
    "dqn-arguments10-pass deterministic=False too",
    "dqn-arguments18-observation is no array: ",
    "dqn-arguments19-rng: a numpy Generator, .*'a'",
    "dqn-arguments2-expects numbers",
    "dqn-arguments20-rng: a numpy Generator, .*-1",
    "dqn-arguments22-epsilon is a share, 0 to 1; this is 'a'",
    "dqn-arguments23-epsilon is a share",
    "dqn-arguments24-epsilon is a share, 0 to 1; this is True",
    "dqn-arguments25-epsilon is a share, 0 to 1; this is nan",
    "dqn-arguments26-deterministic must be .*'no'",
    "dqn-arguments27-deterministic must be True or .*0",
    "dqn-arguments5-trained without masks",
    "dqn-arguments6-a share",
    "masked-arguments11-mask holds -inf; use True or 1 for",
    "masked-arguments12-mask holds nan; use True or 1 for",
    "masked-arguments13-mask holds 'no'; use True or 1 for",
    "masked-arguments14-mask holds '1'; use True or 1 for",
    "masked-arguments15-mask holds None; use True or 1 for",
    "masked-arguments16-mask holds 2; use True or 1 for",
    "masked-arguments17-mask is no array: ",
    "masked-arguments7-masks of 7 actions.* mask=",
    "masked-arguments8-shape \\\\(1, 7\\\\)",
    "masked-arguments9-allows nothing",
    "uint8-arguments3-of uint8; this is of float64, and holds",
    "uint8-arguments4-of uint8; this is of int64, and holds",
)
@pytest.mark.parametrize(
    ("setting", "arguments", "words"),
    [
        ("dqn", {"observation": np.zeros(3)}, r"of shape \(5,\), or a batch .* of shape \(3,\)"),
        ("dqn", {"observation": np.full(5, np.nan)}, "observation 0 is not finite"),
        ("dqn", {"observation": ["a"] * 5}, "expects numbers"),
        ("uint8", {"observation": np.full((1,), 0.5)}, "of uint8; this is of float64, and holds"),
        ("uint8", {"observation": np.full((1,), 256)}, "of uint8; this is of int64, and holds"),
        ("dqn", {"observation": np.zeros(5), "mask": [True] * 4}, "trained without masks"),
        ("dqn", {"observation": np.zeros(5), "deterministic": False, "epsilon": 2}, "a share"),
        ("masked", {"observation": np.zeros((2, 6, 7))}, "masks of 7 actions.* mask="),
        ("masked", {"observation": np.zeros((2, 6, 7)), "mask": [1, 0]}, r"shape \(1, 7\)"),
        ("masked", {"observation": np.zeros((2, 6, 7)), "mask": [False] * 7}, "allows nothing"),
        ("dqn", {"observation": np.zeros(5), "epsilon": 0.3}, "pass deterministic=False too"),
        *(
            ("masked", {"observation": np.zeros((2, 6, 7)), "mask": mask}, words)
            for mask, words in (
                ([0.0] + 6 * [-np.inf], "mask holds -inf; use True or 1 for"),
                ([np.nan] + 6 * [1.0], "mask holds nan; use True or 1 for"),
                (["no"] + 6 * [True], "mask holds 'no'; use True or 1 for"),
                (7 * ["1"], "mask holds '1'; use True or 1 for"),
                ([None] + 6 * [True], "mask holds None; use True or 1 for"),
                ([2] + 6 * [0], "mask holds 2; use True or 1 for"),
                ([[1], [1, 0]], "mask is no array: "),
            )
        ),
        ("dqn", {"observation": [[0.0], [0.0, 1.0]]}, "observation is no array: "),
        ("dqn", {"observation": np.zeros(5), "rng": "a"}, "rng: a numpy Generator, .*'a'"),
        ("dqn", {"observation": np.zeros(5), "rng": -1}, "rng: a numpy Generator, .*-1"),
        ("dqn", {"observation": np.zeros(5), "rng": 0.5}, "rng: a numpy Generator, .*0.5"),
        *(
            ("dqn", {"observation": np.zeros(5), "deterministic": False, "epsilon": epsilon}, words)
            for epsilon, words in (
                ("a", "epsilon is a share, 0 to 1; this is 'a'"),
                ([0.1], "epsilon is a share"),
                (True, "epsilon is a share, 0 to 1; this is True"),
                (np.nan, "epsilon is a share, 0 to 1; this is nan"),
            )
        ),
        (
            "dqn",
            {"observation": np.zeros(5), "deterministic": "no"},
            "deterministic must be .*'no'",
        ),
        (
            "dqn",
            {"observation": np.zeros(5), "deterministic": 0},
            "deterministic must be True or .*0",
        ),
    ],
)
def test_what_does_not_fit_is_told(setting, arguments, words, tmp_path):
    game, policy = SETTINGS[setting]
    run = trained(tmp_path / "run", "support:Tape" if setting == "dqn" else game, policy)
    asked = run["agent_0"]
    if setting == "uint8":
        value = arguments["observation"][0]
        arguments["observation"] = np.full(asked.observation_space.shape, value)
    with refuses(UsageError):
        asked.act(**arguments)
    with refuses(ValueError):
        asked.act(**arguments)


@pytest.mark.slow_cases("bool", "float32", "int64")
@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int64, np.float32])
def test_masks_are_of_what_kind_they_like(kind, tmp_path):
    game, policy = SETTINGS["masked"]
    asked = trained(tmp_path / "run", game, policy)["agent_0"]
    mask = np.array([0, 0, 1, 0, 0, 0, 0], kind)
    assert asked.act(np.zeros((2, 6, 7)), mask=mask) == 2
    assert asked.act(np.zeros((2, 6, 7)), mask=mask.tolist()) == 2
    greedy = asked.act(np.zeros((2, 6, 7)), mask=mask, deterministic=np.bool_(True))
    assert greedy == 2
    drawn = asked.act(np.zeros((2, 6, 7)), mask=mask, rng=np.int64(3), deterministic=False)
    assert drawn == 2
