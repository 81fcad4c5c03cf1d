"""Stacks that learn from single steps or sequences on a GPU learn what they learn here."""

import numpy as np
import pytest
import torch

from devices.alike import FEW, assert_alike, told
from devices.gpus import gpus, is_there
from remuda.config import PolicyConfig
from remuda.policies.actions import DiscreteActions, JointActions
from remuda.policies.algorithms.transition_algorithm import Transitions, TransitionSequences
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng

GPU = "cuda:0"
POLICIES, BATCH, SEQUENCES, STEPS = 3, 12, 3, 5
OWN = "policies.own_networks"
NETWORKS = {
    "plain": {"network": {"hidden": (8, 6), "dueling": False}},
    "dueling": {"network": {"hidden": (8, 6)}},
    "noisy": {"network": {"hidden": (8, 6), "noisy": True}},
    "prioritised": {"network": {"hidden": (8,)}, "prioritised": True},
    "masks": {"network": {"hidden": (8,)}, "masked": True},
    "several choices": {"network": {"hidden": (8,)}, "masked": True, "sizes": (2, 3)},
    "convolution": {
        "network": {"hidden": (8,), "convolutions": ((4, 3, 1),)},
        "observation": (5, 4, 1),
    },
    "recurrent": {"network": {"hidden": (8,), "recurrent": 6}},
    "recurrent, prioritised": {
        "network": {"hidden": (8,), "recurrent": 6},
        "prioritised": True,
        "burn_in": True,
    },
    "own module": {"network": {"module": f"{OWN}:Wide", "hidden": (8,)}},
    "own module, numbers": {"network": {"module": f"{OWN}:Ordered", "hidden": ()}},
    "own module, no vmap": {"network": {"module": f"{OWN}:Branching", "hidden": ()}},
    "own module, recurrent": {"network": {"module": f"{OWN}:small", "recurrent": 6}},
    "own module, LSTM": {"network": {"module": f"{OWN}:Long", "hidden": (8,)}},
    "own module, GRU": {"network": {"module": f"{OWN}:Gated", "hidden": ()}},
}
CASES = [(kind, network) for kind in ("dqn", "iqn") for network in NETWORKS]
CASES += [("policies.own_algorithms:Soft", "plain")]


def stack(kind, network, device):
    """Three policies with hyperparameters of their own."""
    options = dict(NETWORKS[network])
    sizes = options.get("sizes", (3,))
    actions = DiscreteActions(sizes) if len(sizes) == 1 else JointActions(sizes)
    specs = []
    count = 1 if "noisy" in network else POLICIES  # noise is drawn for a whole stack at once
    for k in range(count):
        tree = {"algorithm": kind, "n_frames": 1, "network": options["network"]}
        tree |= {"learning_rate": 1e-3 * (k + 1), "max_grad_norm": 0.1 * (k + 1)}
        if kind in ("dqn", "iqn"):
            tree[kind] = {"target_every": 2 + k} | ({"quantiles": 4} if kind == "iqn" else {})
        config = PolicyConfig.model_validate(tree)
        seen = options.get("observation", (5,))
        masked = options.get("masked", False)
        specs.append(PolicySpec(f"p{k}", config, seen, "float32", actions, masked))
    algorithm = make_algorithm(specs, [torch_rng(0, "test", k) for k in range(count)], device)
    for k in range(count):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", k))
        algorithm.load(k, torch.from_numpy(algorithm.weights(k).copy()))
    return algorithm


def batch_of(algorithm, network, seed):
    """What was drawn, brought to where it is learned from."""
    options, spec = NETWORKS[network], algorithm.network
    rng = np.random.default_rng(seed)
    count, memory = len(algorithm.configs), algorithm.network.memory
    outputs = int(np.prod(options.get("sizes", (3,))))
    size = SEQUENCES * STEPS if memory else BATCH
    at = (count, size)

    def moved(array):
        return torch.from_numpy(array).to(algorithm.device)

    allowed = np.ones(0, bool)
    if options.get("masked"):
        allowed = rng.random((*at, outputs)) < 0.7
        allowed[..., 0] |= ~allowed.any(-1)
    weights = rng.random(at, np.float32) if options.get("prioritised") else np.ones(0, np.float32)
    common = {
        "a_tm1": moved(rng.integers(0, outputs, at)),
        "r_t": moved(rng.normal(size=at).astype(np.float32)),
        "discount_t": moved(rng.random(at, np.float32)),
    }
    if not memory:
        seen = (*at, spec.num_inputs)
        return Transitions(
            s_tm1=moved(rng.random(seen, np.float32)),
            s_t=moved(rng.random(seen, np.float32)),
            allowed_tm1=moved(allowed),
            allowed_t=moved(allowed),
            weights=moved(weights),
            **common,
        )
    shape = (count, SEQUENCES, STEPS)
    burn_in = rng.integers(0, 3, shape[:2]) if options.get("burn_in") else None
    valid = np.ones(shape, np.float32)
    if burn_in is not None:
        valid[...] = np.arange(STEPS) >= burn_in[..., None]
    valid = valid.reshape(at)
    after = np.minimum(np.arange(STEPS) + 2, STEPS)
    return TransitionSequences(
        inputs=moved(rng.random((count, SEQUENCES, STEPS + 1, spec.num_inputs), np.float32)),
        states=moved(rng.normal(size=(count, SEQUENCES, memory)).astype(np.float32)),
        burn_in=None if burn_in is None else moved(burn_in),
        after=moved(np.broadcast_to(after, shape).copy()),
        allowed_t=moved(allowed),
        valid=moved(valid),
        weights=moved(valid * (weights if weights.size else 1.0)),
        longest=STEPS + 2,
        **common,
    )


def lived(algorithm, network):
    """All that is done with a stack, and what could be seen of it."""
    seen, count = [], len(algorithm.configs)
    for seed, part in enumerate([(0, count), (0, count), (0, 1), (count - 1, count)]):
        whole = batch_of(algorithm, network, seed)
        rows = {
            name: value[slice(*part)]
            if isinstance(value, torch.Tensor) and value.numel()
            else value
            for name, value in vars(whole).items()
        }
        seen.append(told(algorithm.update(type(whole)(**rows), *part)))
        seen += [algorithm.weights(k).copy() for k in range(count)]
    assert all(algorithm.is_finite(k) for k in range(count))
    parent = algorithm.learned(0)
    training, own = algorithm.training(parent), algorithm.configs[-1]
    algorithm.begin(count - 1, torch.from_numpy(parent["online"]), own, training)
    algorithm.update(batch_of(algorithm, network, 7))
    algorithm.begin(0, torch.from_numpy(parent["online"]), own)
    return [*seen, *(algorithm.state(k) for k in range(count))]


@pytest.mark.slow_cases(
    "dqn-own module, GRU",
    "dqn-own module, LSTM",
    "dqn-own module, recurrent",
    "dqn-recurrent",
    "dqn-recurrent, prioritised",
    "iqn-own module, GRU",
    "iqn-own module, LSTM",
    "iqn-own module, recurrent",
    "iqn-recurrent",
    "iqn-recurrent, prioritised",
)
@pytest.mark.parametrize(("kind", "network"), CASES)
def test_a_stack_there_learns_what_it_learns_here(kind, network):
    expected = lived(stack(kind, network, "cpu"), network)
    with gpus() as counted:
        there = stack(kind, network, GPU)
        for held in (there.online.flat, there.online.gradients, there.target.flat):
            assert is_there(held)
        counted.on_cpu.clear()
        assert_alike(lived(there, network), expected)
        assert set(counted.on_cpu) <= FEW
        assert {"_fused_adam_", "linalg_vector_norm"} <= set(counted.on_gpu)


@pytest.mark.slow_cases("cuda:0-cuda:0-iqn")
@pytest.mark.parametrize("kind", ["dqn", "iqn"])
@pytest.mark.parametrize(("first", "then"), [(GPU, GPU), (GPU, "cpu"), ("cpu", GPU)])
def test_a_stack_goes_on_where_it_is_restored(kind, first, then):
    with gpus():
        one = stack(kind, "dueling", first)
        one.update(batch_of(one, "dueling", 0))
        saved = [one.state(k) for k in range(POLICIES)]
        other = stack(kind, "dueling", then)
        for k in range(POLICIES):
            other.restore(k, saved[k])
        for algorithm in (one, other):
            algorithm.update(batch_of(algorithm, "dueling", 1))
        found = [other.state(k) for k in range(POLICIES)]
        assert_alike(found, [one.state(k) for k in range(POLICIES)])
