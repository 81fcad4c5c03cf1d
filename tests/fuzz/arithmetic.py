"""Random shapes for the compiled arithmetic, compared with float64 or with torch's autograd."""

import numpy as np
import torch
from torch.nn import functional

from remuda.config import NetworkConfig, PolicyConfig
from remuda.policies.actions import DiscreteActions
from remuda.policies.advantages import (
    explained_variance,
    generalised_advantages,
    running_sums,
    vtrace,
)
from remuda.policies.algorithms.algorithm import clip
from remuda.policies.algorithms.dqn import DQN
from remuda.policies.algorithms.iqn import IQN
from remuda.policies.algorithms.kernels.ppo_heads import BLOCK, FORBIDDEN, softmax
from remuda.policies.algorithms.transition_algorithm import TransitionAlgorithm, Transitions
from remuda.policies.networks.kernels.convolution import convolve
from remuda.policies.networks.kernels.gemm import add_products, multiply
from remuda.policies.optimizer import BETA_1, BETA_2, step
from remuda.policies.selectors import take_best_choices
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng
from trained_policies import part_of

EDGES = np.array([1, 2, 3, 4, 5, 7, 8, 9, 13, 14, 15, 16, 17, 31, 32, 33, 63, 64, 65])
"""Sizes around the widths of vector registers and of tiles."""


def size(random, most=40):
    """A size from 1 on: half of the time one of `EDGES`."""
    if random.random() < 0.5:
        return int(random.choice(EDGES[most >= EDGES]))
    return int(random.integers(1, most + 1))


def floats(random, *shape, scale=1.0):
    """Random float32 numbers, as a tensor."""
    return torch.from_numpy((scale * random.standard_normal(shape)).astype(np.float32))


class Placed:
    """A tensor amid other numbers: rows further apart than they are long, at any address."""

    def __init__(self, random, values):
        count, rows, columns = values.shape
        gap, shift = int(random.integers(0, 4)), int(random.integers(0, 5))
        self._memory = torch.full((shift + count * (rows + 1) * (columns + gap) + 5,), 7.25)
        view = self._memory[shift : shift + count * (rows + 1) * (columns + gap)]
        self.tensor = view.view(count, rows + 1, columns + gap)[:, :rows, :columns]
        self.tensor.copy_(values)
        self._before = self._memory.clone()

    def others_are_unchanged(self):
        values = self.tensor.clone()
        self.tensor.copy_(torch.zeros_like(values))
        now = self._memory.clone()
        self.tensor.copy_(values)
        before = self._before.clone()
        inside = torch.as_strided(
            before, self.tensor.shape, self.tensor.stride(), self.tensor.storage_offset()
        )
        inside.zero_()
        return torch.equal(now, before)


def products(random):
    count, inputs, outputs = int(random.integers(1, 5)), size(random, 300), size(random, 160)
    rows = int(random.integers(0, 3)) if random.random() < 0.2 else size(random, 60)
    x, weight = floats(random, count, rows, inputs), floats(random, count, inputs, outputs)
    bias = floats(random, count, 1, outputs) if random.random() < 0.5 else None
    out = Placed(random, torch.zeros(count, rows, outputs))
    multiply(Placed(random, x).tensor, Placed(random, weight).tensor, bias, out.tensor)
    exact = x.double() @ weight.double() + (0.0 if bias is None else bias.double())
    largest = x.abs().double() @ weight.abs().double() + 1.0
    assert ((out.tensor.double() - exact).abs() <= 3e-6 * largest).all()
    assert out.others_are_unchanged()
    if not rows:
        return
    errors, before = floats(random, count, rows, outputs), floats(random, count, inputs, outputs)
    gradient, fresh = Placed(random, before), bool(random.random() < 0.5)
    add_products(Placed(random, x).tensor, Placed(random, errors).tensor, gradient.tensor, fresh)
    exact = x.mT.double() @ errors.double() + (0.0 if fresh else before.double())
    largest = x.mT.abs().double() @ errors.abs().double() + before.abs() + 1.0
    assert ((gradient.tensor.double() - exact).abs() <= 3e-6 * largest).all()
    assert gradient.others_are_unchanged()


def convolutions(random):
    kernel, stride = int(random.integers(1, 5)), int(random.integers(1, 4))
    height, width = (kernel + int(random.integers(0, 12)) for _ in range(2))
    count, samples = int(random.integers(1, 4)), int(random.integers(1, 6))
    channels, outputs = size(random, 20), size(random, 40)
    activation = str(random.choice(["relu", "tanh"]))
    x = floats(random, count, samples, height, width, channels)
    weight = floats(random, count, outputs, channels, kernel, kernel, scale=0.3)
    bias = floats(random, count, 1, outputs)
    exact = [each.double().requires_grad_() for each in (x, weight, bias)]
    theirs = torch.stack(
        [
            functional.conv2d(exact[0][k].movedim(3, 1), exact[1][k], exact[2][k, 0], stride)
            for k in range(count)
        ]
    ).movedim(2, 4)
    away = theirs.abs() > 1e-4  # else rounding decides on which side of the kink of relu it is
    theirs = getattr(theirs, activation)()
    errors = floats(random, *theirs.shape) * away
    ours = [each.clone().requires_grad_() for each in (x, weight, bias)]
    out = convolve(*ours, stride, activation)
    found = [out.detach(), *torch.autograd.grad((out * errors).sum(), ours)]
    wanted = [theirs.detach(), *torch.autograd.grad((theirs * errors).sum(), exact)]
    for mine, its in zip(found, wanted, strict=True):
        assert mine.shape == its.shape
        assert (mine.double() - its).abs().max() <= 2e-5 * max(float(its.abs().max()), 1.0)


def q_learning(random):
    _values(random, "dqn", DQN)


def quantiles(random):
    _values(random, "iqn", IQN)


def _values(random, name, kind):
    policies, inputs, actions = (int(random.integers(1, most)) for most in (4, 12, 7))
    hidden = tuple(size(random, 40) for _ in range(int(random.integers(1, 4))))
    activation = str(random.choice(["relu", "tanh"]))
    own = {"double": bool(random.integers(2)), "huber": float(random.uniform(0.1, 2.0))}
    if name == "iqn":
        own |= {"quantiles": int(random.integers(1, 9)), "cosines": int(random.integers(1, 17))}
    network = NetworkConfig(hidden=hidden, activation=activation, dueling=bool(random.integers(2)))
    config = PolicyConfig(algorithm=name, network=network, n_frames=1, **{name: own})
    spec = PolicySpec("a", config, (inputs,), "float32", DiscreteActions((actions,)))
    seed, samples = int(random.integers(1 << 30)), size(random, 90)
    batch = _transitions(random, policies, samples, inputs, actions)
    found = []
    for way in (TransitionAlgorithm._differentiate, kind._differentiate):
        streams = [torch_rng(seed, "test", k) for k in range(policies)]
        algorithm = make_algorithm([spec] * policies, streams)
        for k in range(policies):
            algorithm.network.initialise(algorithm.online.of(k), torch_rng(seed, "weights", k))
            algorithm.network.initialise(algorithm.target.of(k), torch_rng(seed, "target", k))
        assert algorithm.is_fused
        algorithm.online.gradients.fill_(7.0)
        part = part_of(algorithm, 0, policies)
        told = [x.clone() for x in way(algorithm, batch, part)[:3]]
        found.append([algorithm.online.gradients.clone(), *told])
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=3e-5)


def _transitions(random, policies, samples, inputs, actions):
    shape = policies, samples
    batch = {
        "s_tm1": floats(random, *shape, inputs),
        "a_tm1": torch.from_numpy(random.integers(0, actions, shape)),
        "r_t": floats(random, *shape),
        "discount_t": torch.from_numpy(random.random(shape).astype(np.float32)),
        "s_t": floats(random, *shape, inputs),
    }
    batch["discount_t"][torch.from_numpy(random.random(shape) < 0.3)] = 0.0
    if random.random() < 0.5:
        allowed = random.random((*shape, actions)) < 0.6
        allowed[..., 0] |= ~allowed.any(-1)
        batch["allowed_t"] = torch.from_numpy(allowed)
    if random.random() < 0.5:
        batch["weights"] = torch.from_numpy(random.random(shape).astype(np.float32))
    return Transitions(**batch)


def _segments(random):
    """Rows of segments of any lengths: rewards, discounts, values, and where a segment ended."""
    lengths = random.integers(1, 12, int(random.integers(1, 9)))
    rows = int((lengths + 1).sum())
    after = np.zeros(rows, np.bool_)
    after[np.cumsum(lengths + 1) - 1] = True
    rewards, values = (random.standard_normal(rows).astype(np.float32) for _ in range(2))
    discounts = np.full(rows, random.choice([0.0, 0.9, 0.99, 1.0]), np.float32)
    discounts[random.random(rows) < 0.2] = 0.0
    rewards[after] = discounts[after] = 0.0
    return rewards, discounts, values, after


def advantages(random):
    """Generalised advantages, V-trace and explained variance, by their definitions as sums."""
    r, d, v, after = _segments(random)
    decay, most = (float(random.choice([0.0, 0.5, 0.95, 1.0])), float(random.uniform(0.3, 3.0)))
    ratios = random.uniform(0.0, 2.5, r.size).astype(np.float32)
    found, targets, traced = (np.zeros_like(r) for _ in range(3))
    generalised_advantages(r, d, v, after, decay, found)
    vtrace(r, d, v, after, ratios, decay, most, traced, targets)
    wide = [x.astype(np.float64) for x in (r, d, v, ratios)]
    for i in range(r.size):
        exact, beyond = _by_sums(i, *wide, after, decay, most)
        np.testing.assert_allclose(found[i], exact, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(targets[i], v[i] + beyond, rtol=1e-4, atol=1e-4)
        credit = 0.0
        if not after[i]:
            _, later = _by_sums(i + 1, *wide, after, decay, most)
            credit = wide[0][i] + wide[1][i] * (wide[2][i + 1] + decay * later) - wide[2][i]
        np.testing.assert_allclose(traced[i], credit, rtol=1e-4, atol=1e-4)
    steps = ~after
    variance = targets[steps].astype(np.float64).var()
    explained = explained_variance(v, targets, after)
    if variance > 1e-6:
        apart = (targets - v)[steps].astype(np.float64).var()
        np.testing.assert_allclose(explained, 1.0 - apart / variance, rtol=1e-3, atol=1e-3)


def _by_sums(i, r, d, v, ratios, after, decay, most):
    """The advantage of row i, and what V-trace's target is above its value; float64."""
    advantage = beyond = 0.0
    weight = cut = 1.0
    while not after[i]:
        error = r[i] + d[i] * v[i + 1] - v[i]
        advantage += weight * error
        beyond += weight * cut * min(ratios[i], most) * error
        cut *= min(ratios[i], 1.0)
        weight *= d[i] * decay
        i += 1
    return advantage, beyond


def running_returns(random):
    """Discounted sums run on from segment to segment of a stream."""
    r, d, _, after = _segments(random)
    streams = np.cumsum(np.concatenate(([False], after[:-1]))) % int(random.integers(1, 4))
    streams = np.where(after, -1, streams).astype(np.int64)
    sums = random.standard_normal(4)
    exact, wanted = sums.copy(), []
    for i in np.flatnonzero(~after):
        exact[streams[i]] += r[i]
        wanted.append(exact[streams[i]])
        exact[streams[i]] *= d[i]
    found = running_sums(r, d, streams, sums)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sums, exact, rtol=1e-6, atol=1e-6)


def optimizers(random):
    """Adam and the clipping of gradients, of some rows of a stack."""
    count, width = int(random.integers(1, 5)), size(random, 70)
    used = int(random.integers(0, width + 1))
    flat, gradients, means = (floats(random, count, width).numpy() for _ in range(3))
    squares = np.abs(floats(random, count, width).numpy())
    steps = random.integers(0, 50, count).astype(np.float32)
    rates, epsilons = random.uniform(1e-4, 1e-2, count), random.uniform(1e-8, 1e-3, count)
    rows = np.flatnonzero(random.random(count) < 0.7)
    before = [x.astype(np.float64) for x in (flat, gradients, means, squares)]
    counts = steps.astype(np.float64)
    step(flat, gradients, means, squares, steps, rows, rates, epsilons, used)
    w, g, m, v = before
    for k in rows:
        t, part = counts[k] + 1.0, (k, slice(0, used))
        m[part] = BETA_1 * m[part] + (1 - BETA_1) * g[part]
        v[part] = BETA_2 * v[part] + (1 - BETA_2) * g[part] ** 2
        scale = np.sqrt(v[part] / (1 - BETA_2**t)) + epsilons[k]
        w[part] -= rates[k] * m[part] / (1 - BETA_1**t) / scale
    np.testing.assert_allclose(flat, w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(means, m, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(squares, v, rtol=1e-4, atol=1e-5)
    limits = random.uniform(0.1, 5.0, (count, 1)).astype(np.float32)
    norms, cut = np.zeros((count, 1), np.float32), gradients.copy()
    clip(cut, used, limits, norms)
    exact = np.linalg.norm(g[:, :used], axis=1)
    np.testing.assert_allclose(norms[:, 0], exact, rtol=1e-5, atol=1e-6)
    wanted = gradients.astype(np.float64)
    wanted[:, :used] *= np.minimum(1.0, limits[:, 0] / (exact + 1e-6))[:, None]
    np.testing.assert_allclose(cut, wanted, rtol=1e-4, atol=1e-5)


def softmaxes(random):
    """Probabilities, their logarithms and the entropy of masked choices, by columns."""
    actions, count = int(random.integers(1, 20)), int(random.integers(1, BLOCK + 1))
    scale = float(random.choice([0.1, 1.0, 30.0]))
    logits = np.zeros((actions, BLOCK), np.float32)
    logits[:, :count] = scale * random.standard_normal((actions, count))
    allowed = random.random((actions, BLOCK)) < 0.6
    allowed[0] |= ~allowed.any(0)
    is_masked = bool(random.random() < 0.5)
    masks = np.where(allowed, 1.0, 0.0).astype(np.float32)[: actions if is_masked else 0]
    if is_masked:
        logits[~allowed] = FORBIDDEN  # as `load` leaves them
    pi, log_pi = np.zeros_like(logits), np.zeros_like(logits)
    entropy = np.zeros(BLOCK, np.float32)
    exact = logits[:, :count].astype(np.float64)
    softmax(logits.copy(), masks, pi, log_pi, entropy, count)
    if is_masked:
        exact = np.where(allowed[:, :count], exact, -np.inf)
    log = exact - np.logaddexp.reduce(exact, 0)
    p = np.exp(log)
    np.testing.assert_allclose(pi[:, :count], p, rtol=1e-4, atol=1e-6)
    possible = np.isfinite(log)
    np.testing.assert_allclose(log_pi[:, :count][possible], log[possible], rtol=1e-4, atol=1e-4)
    exact_entropy = -np.where(p > 0.0, p * np.where(possible, log, 0.0), 0.0).sum(0)
    np.testing.assert_allclose(entropy[:count], exact_entropy, rtol=1e-4, atol=1e-4)


def greedy(random):
    """The best allowed action: the first of those that are equal."""
    rows, actions = int(random.integers(0, 30)), int(random.integers(1, 12))
    outputs = random.integers(-3, 4, (rows, actions)).astype(np.float32)
    masks = random.random((rows, actions)) < 0.6
    masks[:, 0] |= ~masks.any(1)
    if random.random() < 0.3:
        masks = np.ones((rows, 0), np.bool_)
    chosen = np.full(rows, -1, np.int64)
    take_best_choices(outputs, masks, np.array([actions]), chosen[:, None])
    exact = np.where(masks, outputs, -np.inf) if masks.shape[1] else outputs
    assert (chosen == exact.argmax(1)).all()
