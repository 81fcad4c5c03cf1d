"""Random networks and rollouts: passes and updates by kernels, compared with torch."""

from dataclasses import replace

import numpy as np
import torch

from fuzz.arithmetic import size
from policies.made_rollouts import LENGTH, fill, make_specs, room_for
from remuda.config import PolicyConfig
from remuda.policies.acting import ActingStack
from remuda.policies.actions import DiscreteActions
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import make_rng, torch_rng


def passes(random):
    """What policies put out while they act, stacked and gathered, in float64."""
    policies, inputs, actions = (int(random.integers(1, most)) for most in (4, 12, 7))
    name = str(random.choice(["ppo", "dqn", "iqn"]))
    hidden = tuple(size(random, 70) for _ in range(int(random.integers(1, 4))))
    tree = {"hidden": hidden, "activation": str(random.choice(["relu", "tanh"]))}
    tree |= {"shared": bool(random.integers(2))} if name == "ppo" else {}
    tree |= {"dueling": bool(random.integers(2))} if name != "ppo" else {}
    config = PolicyConfig.model_validate({"algorithm": name, "n_frames": 1, "network": tree})
    spec = PolicySpec("a", config, (inputs,), "float32", DiscreteActions((actions,)))
    counts = random.integers(0, 20, policies)
    begins = np.concatenate(([0], np.cumsum(counts)))
    network, total = spec.network(), int(begins[-1])
    stacked = ActingStack(network, [None] * policies, max(int(counts.max()), 1))
    gathered = ActingStack(network, [None] * policies, max(total, 1), gathered=True)
    seed = int(random.integers(1 << 30))
    algorithm = make_algorithm([spec] * policies, [_stream(name, seed, k) for k in range(policies)])
    seen = random.standard_normal((max(total, 1), inputs)).astype(np.float32)
    streams = random.permutation(total)
    for k in range(policies):
        network.initialise(algorithm.online.of(k), torch_rng(seed, "weights", k))
        for each in (stacked, gathered):
            each.load(k, algorithm.weights(k))
        stacked.inputs[k, : counts[k]] = seen[streams[begins[k] : begins[k + 1]]]
    said, told = stacked.outputs(0, policies), None
    if gathered.gathered_pass is not None:
        told = gathered.gathered_pass(seen, begins, streams)
    with torch.inference_mode():
        wide = {key: value.double() for key, value in algorithm.online.parameters.items()}
        exact = network.outputs(
            network.acting(wide, None), torch.from_numpy(stacked.inputs).double()
        ).numpy()
    np.testing.assert_allclose(said, exact, 1e-3, 1e-4)
    for k in range(policies) if told is not None else ():
        np.testing.assert_array_equal(told[begins[k] : begins[k + 1]], said[k, : counts[k]])


def _stream(name, seed, k):
    return make_rng(seed, "test", k) if name == "ppo" else torch_rng(seed, "test", k)


PPO = ("trunk", "towers", "masks", "several choices", "continuous", "convolution", "recurrent")
PPO += ("recurrent, masks", "value clip", "vtrace", "normalised", "values as they are")


def rollouts(random):
    """Updates of PPO on segments of any lengths, one step and longer."""
    kind, policies = str(random.choice(PPO)), int(random.integers(1, 4))
    specs = make_specs(kind, range(policies), batch_size=1, ppo={"epochs": 1, "minibatches": 2})
    wide = tuple(size(random, 40) for _ in range(len(specs[0].config.network.hidden)))
    trees = [spec.config.model_dump(exclude_unset=True) for spec in specs]
    for tree in trees:
        tree["network"]["hidden"] = wide
    seed, found = int(random.integers(1 << 30)), []
    amounts = [random.integers(1, LENGTH + 1, int(random.integers(1, 30))) for _ in specs]
    for by_kernels in (True, False):
        own = [
            replace(spec, config=PolicyConfig.model_validate(tree))
            for spec, tree in zip(specs, trees, strict=True)
        ]
        algorithm = make_algorithm(own, [make_rng(seed, "test", k) for k in range(policies)])
        for k in range(policies):
            algorithm.network.initialise(algorithm.online.of(k), torch_rng(seed, "weights", k))
        assert algorithm._by_kernels
        if not by_kernels:
            algorithm._by_kernels, algorithm._memory = False, None
        room = room_for(algorithm, LENGTH * 40)
        for k, lengths in enumerate(amounts):
            fill(room, k, lengths.tolist(), algorithm, np.random.default_rng(seed + k))
        found.append((algorithm.online.flat.clone(), algorithm.update(room, range(policies))))
        found[-1] += (algorithm.online.flat.clone(),)
    (before, ours, mine), (_, theirs, its) = found
    assert not torch.equal(before, mine)
    for name in ("loss", "policy_loss", "value_loss", "entropy", "kl", "gradient_norm"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=5e-3, atol=1e-4, err_msg=name
        )
    torch.testing.assert_close(mine, its, rtol=1e-2, atol=1e-3)
