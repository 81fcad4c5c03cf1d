"""PPO with made rollouts."""

import numpy as np
import pytest
import torch

from remuda.config import PolicyConfig
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.experience.segments import AFTER, Rollout
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.autograd import Autograd
from remuda.policies.algorithms.kernels.ppo import Fused
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.memory.waiting import Wakeup
from remuda.system.rng import make_rng, torch_rng

DISCRETE = DiscreteActions((3,))


LENGTH = 8


def make(policies=1, actions=DISCRETE, own=(), masked=False, first=0, **options):
    """A stack of policies, each with the random numbers of its number, from `first` on."""
    network = {"hidden": (16, 16), "shared": options.pop("shared", True)}
    tree = {"algorithm": "ppo", "network": network, "ppo": {"minibatches": 2} | options}
    tree["learning_rate"] = tree["ppo"].pop("learning_rate", 1e-2)
    specs = [
        PolicySpec(
            f"p{k}",
            PolicyConfig.model_validate(tree | (own[k] if own else {})),
            (2,),
            "float32",
            actions,
            masked,
        )
        for k in range(policies)
    ]
    algorithm = make_algorithm(specs, [make_rng(0, "test", first + k) for k in range(policies)])
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", first + k))
    return algorithm


def act(algorithm, policy, observations, random, masks=None):
    """What a policy chooses, as an actor would: actions and log-probabilities."""
    weights = algorithm.network.acting(algorithm.online.of(policy), None)
    with torch.no_grad():
        seen = torch.from_numpy(observations)[None]
        outputs = algorithm.network.outputs(weights, seen)[0].numpy()
    kind = algorithm.network.actions
    chosen = np.zeros((len(observations), kind.size), kind.dtype)
    log_probs = np.zeros(len(observations), np.float32)
    masks = np.ones((len(observations), 0), bool) if masks is None else masks
    rngs = None if random is None else [random]
    kind.choose_for_all(outputs[None], masks[None], rngs, chosen[None], log_probs[None])
    return chosen, log_probs


def play(algorithm, reward, random, segments=32, masks=None, added=0):
    """A rollout of bandits: what is seen is uniform, a reward depends on it and on the action.

    A critic sees `added` more numbers.
    """
    kind = algorithm.network.actions
    count = len(algorithm.configs)
    mask_size = 0 if masks is None else 3
    shape = StreamShape((2 + added,), np.float32, 1, kind.size, kind.dtype, mask_size)
    config = algorithm.configs[0].experience.model_copy(update={"segment_length": LENGTH})
    experience = Experience(shape, config, (segments,), Wakeup(), (Wakeup(),), segments * LENGTH)
    rollout = Rollout.empty(experience, count)
    rows = segments * (LENGTH + 1)
    rollout.num_rows[:], rollout.num_steps[:] = rows, segments * LENGTH
    rollout.num_taken[:] = rollout.num_steps
    for k in range(count):
        seen = random.random((rows, 2), np.float32)
        allowed = None if masks is None else np.tile(masks, (rows, 1))
        chosen, log_probs = act(algorithm, k, seen, random, allowed)
        more = random.random((rows, added), np.float32)
        rollout.observations[k, :rows] = np.concatenate((seen, more), 1)
        rollout.actions[k, :rows] = chosen
        rollout.log_probs[k, :rows] = log_probs
        rollout.rewards[k, :rows] = reward(seen, chosen)
        rollout.streams[k, :rows] = np.arange(rows) // (LENGTH + 1)
        rollout.streams[k, LENGTH : rows : LENGTH + 1] = AFTER
        if masks is not None:
            rollout.masks[k, :rows] = masks
    return rollout


def watched_update(algorithm, rollout, members=(0,)):
    """Update; returns what was said of it, and the arguments of the first minibatch's step.

    The latter are the engine, the batch of the whole rollout, and the rows.
    """
    steps = []
    with pytest.MonkeyPatch.context() as patch:
        for kind in (Autograd, Fused):

            def noted(engine, *given, step=kind.step):
                steps.append((engine, *given))
                return step(engine, *given)

            patch.setattr(kind, "step", noted)
        learned = algorithm.update(rollout, list(members))
    return learned, steps[0]


def bandit(seen, chosen):
    return seen[:, 0] * (chosen[:, 0] == 1) - seen[:, 1] * (chosen[:, 0] == 2)
