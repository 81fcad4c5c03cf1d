"""PPO stacks and rollouts of any shape, without a game: each policy has segments of its own."""

import numpy as np

from remuda.config import PolicyConfig
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.experience.segments import AFTER, Rollout
from remuda.policies.actions import DiscreteActions
from remuda.policies.continuous_actions import ContinuousActions
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.memory.waiting import Wakeup
from remuda.system.rng import make_rng, torch_rng

LENGTH = 8
"""The most steps in a segment."""
DISCRETE = DiscreteActions((3,))
CONTINUOUS = ContinuousActions(np.full(2, -2, np.float32), np.full(2, 2, np.float32))
PLAIN = {"network": {"hidden": (8, 8)}}
KINDS = {
    "trunk": PLAIN,
    "towers": {"network": {"hidden": (8, 8), "shared": False}},
    "masks": PLAIN | {"masked": True},
    "several choices": PLAIN | {"actions": DiscreteActions((2, 3)), "masked": True},
    "continuous": PLAIN | {"actions": CONTINUOUS},
    "convolution": {
        "network": {"hidden": (8,), "convolutions": ((4, 3, 1),)},
        "observation": (5, 4, 1),
    },
    "recurrent": {"network": {"hidden": (8,), "recurrent": 6}},
    "recurrent, masks": {
        "network": {"hidden": (8,), "recurrent": 6},
        "masked": True,
    },
    "recurrent, continuous": {
        "network": {"hidden": (8,), "recurrent": 6},
        "actions": CONTINUOUS,
    },
    "target_kl": PLAIN | {"ppo": {"target_kl": 0.002}},
    "recurrent, target_kl": {
        "network": {"hidden": (8,), "recurrent": 6},
        "ppo": {"target_kl": 0.002},
    },
    "annealed": PLAIN | {"ppo": {"anneal_steps": 1500}},
    "normalised": PLAIN | {"ppo": {"normalise_observations": True, "normalise_rewards": True}},
    "values as they are": PLAIN | {"ppo": {"normalise_values": False}},
    "value clip": PLAIN | {"ppo": {"value_clip": 0.1, "normalise_advantages": False}},
    "anchor": PLAIN | {"ppo": {"anchor_cost": 0.5}},
    "averaged anchor": PLAIN | {"ppo": {"anchor_cost": 0.5, "anchor": "average"}},
    "anchor, target_kl": PLAIN | {"ppo": {"anchor_cost": 0.5, "target_kl": 0.002}},
    "own algorithm": PLAIN | {"algorithm": "policies.own_algorithms:Vanilla"},
    "own algorithm, recurrent": {
        "algorithm": "policies.own_algorithms:Vanilla",
        "network": {"hidden": (8,), "recurrent": 6},
        "settings": {"push": 0.7},
    },
    "own module": {"network": {"module": "policies.own_networks:small"}},
    "own module, towers": {
        "network": {"module": "policies.own_networks:Wide", "hidden": (8,), "shared": False}
    },
    "own module, no vmap": {"network": {"module": "policies.own_networks:Branching"}},
    "own module, recurrent": {"network": {"module": "policies.own_networks:small", "recurrent": 6}},
    "vtrace": PLAIN | {"ppo": {"correction": "vtrace"}},
}
"""By name, what is unlike the default."""


def make_specs(kind, members, own=None, **more):
    """The policies of these numbers; `own`: by number, what a policy has for itself."""
    options = dict(KINDS[kind])
    actions = options.pop("actions", DISCRETE)
    observation = options.pop("observation", (5,))
    masked = options.pop("masked", False)
    tree = {"algorithm": "ppo", "learning_rate": 3e-3} | options | more
    specs = []
    for k in members:
        mine = own(k) if own else {}
        mine = tree | mine | {"ppo": tree.get("ppo", {}) | mine.get("ppo", {})}
        config = PolicyConfig.model_validate(mine)
        specs.append(PolicySpec(f"p{k}", config, observation, "float32", actions, masked))
    return specs


def make_stack(kind, members, device="cpu", **more):
    """The policies of these numbers as one stack; each begins the same in every stack."""
    specs = make_specs(kind, members, **more)
    algorithm = make_algorithm(specs, [make_rng(0, "test", k) for k in members], device)
    for i, k in enumerate(members):
        algorithm.network.initialise(algorithm.online.of(i), torch_rng(0, "weights", k))
    return algorithm


def room_for(algorithm, steps):
    """An empty rollout for a stack, with room for so many steps of each policy."""
    network = algorithm.network
    kind = network.actions
    masks = kind.mask_size
    shape = StreamShape(
        (network.num_inputs,), np.float32, 1, kind.size, kind.dtype, masks, network.memory
    )
    config = algorithm.configs[0].experience.model_copy(update={"segment_length": LENGTH})
    experience = Experience(shape, config, (4,), Wakeup(), (Wakeup(),), steps + LENGTH)
    return Rollout.empty(experience, len(algorithm.configs))


def fill(rollout, row, lengths, algorithm, random):
    """Write segments of these lengths into one row; all beyond is poisoned, as it may be stale."""
    kind = algorithm.network.actions
    for name in ("observations", "log_probs", "rewards", "discounts", "recurrent_states"):
        getattr(rollout, name)[row] = np.nan
    rollout.starts[row] = 10**9
    rollout.masks[row] = False
    at = 0
    for segment, length in enumerate(lengths):
        end = at + length
        steps, seen = slice(at, end), slice(at, end + 1)
        shape = rollout.observations[row, seen].shape
        rollout.observations[row, seen] = random.random(shape, np.float32)
        if isinstance(kind, DiscreteActions):
            sizes = np.array(kind.sizes)
            rollout.actions[row, seen] = random.integers(0, sizes, (length + 1, len(sizes)))
            rollout.masks[row, seen] = random.random(rollout.masks[row, seen].shape) < 0.7
            if rollout.masks.shape[-1]:
                starts = np.cumsum(sizes) - sizes
                for t in range(at, end + 1):
                    rollout.masks[row, t, starts + rollout.actions[row, t]] = True
        else:
            rollout.actions[row, seen] = random.normal(size=(length + 1, kind.size))
        rollout.log_probs[row, seen] = np.log(random.uniform(0.2, 0.5, length + 1))
        rollout.rewards[row, seen] = random.normal(size=length + 1)
        rollout.discounts[row, seen] = 1.0
        if random.random() < 0.5:
            rollout.discounts[row, end - 1] = 0.0
        rollout.rewards[row, end] = rollout.discounts[row, end] = 0.0
        rollout.versions[row, seen] = 0
        rollout.streams[row, steps] = segment % 4
        rollout.streams[row, end] = AFTER
        rollout.recurrent_states[row, segment] = random.normal(
            size=rollout.recurrent_states.shape[-1]
        )
        rollout.starts[row, segment] = at
        at = end + 1
    rollout.num_rows[row], rollout.num_segments[row] = at, len(lengths)
    rollout.num_steps[row] = rollout.num_taken[row] = sum(lengths)


def some_lengths(segments, random):
    """Lengths of so many segments: half of them full, the others by chance."""
    lengths = random.integers(1, LENGTH + 1, segments)
    return np.where(random.random(segments) < 0.5, LENGTH, lengths).tolist()
