"""PPO's objective by kernels, held to torch's for every kind of network, action and amount."""

import itertools
import threading

import numpy as np
import pytest
import torch

from policies.made_rollouts import KINDS, LENGTH, fill, make_stack, room_for
from refusals import refuses
from remuda.policies import parallel_parts
from remuda.policies.algorithms import autograd
from remuda.policies.algorithms.algorithm import has_flag
from remuda.policies.algorithms.kernels import ppo
from remuda.policies.algorithms.kernels.objective import Objective
from remuda.policies.algorithms.kernels.ppo import Fused
from remuda.policies.algorithms.kernels.ppo_heads import BLOCK, softmax
from remuda.policies.algorithms.ppo import PPO
from remuda.policies.continuous_actions import ContinuousActions
from remuda.policies.networks.actor_critic import ActorCritic

pytestmark = pytest.mark.usefixtures("one_thread")

SEGMENTS = ((3, 8, 1), (8, 8, 8, 8, 2), (5,) * 40)
"""By policy, the lengths of its segments."""
BY_TORCH = [kind for kind in KINDS if "anchor" in kind or "own algorithm" in kind]


def trained(kind, by_kernels, policies=range(3)):
    algorithm = make_stack(kind, policies)
    if not by_kernels:
        algorithm._by_kernels, algorithm._memory = False, None
    room, told = room_for(algorithm, LENGTH * 64), []
    for update in range(2):
        for i, k in enumerate(policies):
            fill(room, i, SEGMENTS[k], algorithm, np.random.default_rng(10 * update + k))
        told.append(algorithm.update(room, range(len(policies))))
    return algorithm, told


@pytest.mark.slow_cases("own module, recurrent", "recurrent", "recurrent, masks")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in BY_TORCH])
def test_what_is_learned_by_kernels_is_what_is_learned_by_torch(kind):
    ours, said = trained(kind, by_kernels=True)
    theirs, other = trained(kind, by_kernels=False)
    assert ours._by_kernels
    torch.testing.assert_close(ours.online.flat, theirs.online.flat, rtol=1e-3, atol=3e-5)
    for mine, its in zip(said, other, strict=True):
        for name in ("loss", "policy_loss", "value_loss", "entropy", "kl", "clipped"):
            found, wanted = getattr(mine, name), getattr(its, name)
            np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-5, err_msg=name)
        assert (mine.samples == its.samples).all()


@pytest.mark.parametrize("kind", BY_TORCH)
def test_what_has_no_kernels_is_left_to_torch(kind):
    algorithm = make_stack(kind, range(2))
    *_, engine = algorithm._engine([0, 1])
    assert engine.objective is None


def test_networks_of_ones_own_are_not_taken_for_the_built_in_one():
    class Mine(ActorCritic):
        pass

    algorithm = make_stack("trunk", range(1))
    assert Fused.suits(algorithm.network, algorithm.device)
    algorithm.network.__class__ = Mine
    assert not Fused.suits(algorithm.network, algorithm.device)

    class Squashed(ContinuousActions):
        pass

    low, high = np.zeros(1, np.float32), np.ones(1, np.float32)
    assert Objective.suits(ContinuousActions(low, high))
    assert not Objective.suits(Squashed(low, high))


@pytest.mark.parametrize("kind", ["trunk", "continuous", "several choices"])
@pytest.mark.parametrize("name", ["log_prox", "advantages", "targets"])
def test_what_is_no_number_is_seen_in_the_gradient_too(kind, name):
    """Red before: of the policy it was 0, and the loss alone told."""
    algorithm = make_stack(kind, range(1))
    room = room_for(algorithm, LENGTH * 8)
    fill(room, 0, [8, 8, 8], algorithm, np.random.default_rng(0))
    steps = []
    step = Fused.step

    def spoiled(self, batch, pick):
        getattr(batch, name)[0, pick.rows[0, 0]] = np.nan
        steps.append(step(self, batch, pick))
        return steps[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fused, "step", spoiled)
        learned = algorithm.update(room, [0])
    assert np.isnan(learned.loss[0])
    assert not algorithm.is_finite(0)


def test_losses_of_ones_own_are_not_taken_for_ppos():
    """Red before: a subclass of PPO with other losses trained on those of PPO."""
    assert has_flag(PPO, "fused", "losses")

    class Mine(PPO):
        def losses(self, rows):
            policy, value = super().losses(rows)
            return 0.0 * policy, value

    class Same(PPO):
        pass

    assert not has_flag(Mine, "fused", "losses")
    assert has_flag(Same, "fused", "losses")


def test_a_network_may_say_minus_infinity():
    """Red before: gradients were no numbers, as 0 times that is none."""
    random = np.random.default_rng(0)
    logits = random.standard_normal((1, 5, 3)).astype(np.float32)
    logits[0, ::2, 1] = -np.inf
    pi, log_pi = np.zeros((3, BLOCK), np.float32), np.zeros((3, BLOCK), np.float32)
    entropy = np.zeros(BLOCK, np.float32)
    rows = np.zeros((3, BLOCK), np.float32)
    rows[:, :5] = logits[0].T
    softmax(rows, np.zeros((0, BLOCK), np.float32), pi, log_pi, entropy, 5)
    wanted = torch.distributions.Categorical(logits=torch.from_numpy(logits[0]))
    np.testing.assert_allclose(pi[:, :5].T, wanted.probs, atol=1e-6)
    np.testing.assert_allclose(entropy[:5], wanted.entropy(), atol=1e-6)


CONVOLVES = [kind for kind in KINDS if "convol" in kind and kind not in BY_TORCH]


@pytest.mark.parametrize("kind", CONVOLVES)
def test_pieces_of_a_minibatch_add_up(kind, monkeypatch):
    whole, _ = trained(kind, by_kernels=True)
    in_pieces_of(7, monkeypatch)
    pieces, seen = autograd.Autograd.pieces, []
    monkeypatch.setattr(
        autograd.Autograd,
        "pieces",
        lambda self, pick: [seen.append(piece) or piece for piece in pieces(self, pick)],
    )
    cut, _ = trained(kind, by_kernels=True)
    torch.testing.assert_close(cut.online.flat, whole.online.flat, rtol=1e-3, atol=3e-5)
    assert any(piece.memory is not None or piece.rows.shape[1] <= 7 for piece in seen)


def in_pieces_of(rows, monkeypatch):
    monkeypatch.setattr(autograd, "LEAST", rows)
    monkeypatch.setattr(autograd, "MOST", rows)


@pytest.mark.parametrize("kind", CONVOLVES)
def test_threads_take_pieces_and_the_bits_stay(kind, monkeypatch):
    in_pieces_of(5, monkeypatch)
    one, said = trained(kind, by_kernels=True)
    names, work = set(), parallel_parts.each

    def noted(function, parts):
        def inside(part):
            names.add(threading.current_thread().name)
            return function(part)

        return work(inside, parts)

    monkeypatch.setattr(autograd, "each", noted)
    with parallel_parts.parts_at_once(3):
        several, told = trained(kind, by_kernels=True)
    assert torch.equal(one.online.flat, several.online.flat)
    for ours, theirs in zip(told, said, strict=True):
        assert str(ours) == str(theirs)
    assert any(name.startswith("part") for name in names)


PERCEPTRONS = [kind for kind in KINDS if make_stack(kind, range(1))._is_fused]


@pytest.mark.parametrize("kind", PERCEPTRONS)
def test_threads_take_shares_of_a_minibatch(kind, monkeypatch):
    one, told = trained(kind, by_kernels=True)
    monkeypatch.setattr(ppo, "SHARE_WORK", 1.0)
    names = set()

    def watched(kernel):
        def noted(*args):
            names.add(threading.current_thread().name)
            kernel(*args)

        return noted

    for name in ("differentiate_choices", "differentiate_numbers"):
        monkeypatch.setattr(ppo, name, watched(getattr(ppo, name)))
    with parallel_parts.parts_at_once(3):
        several, said = trained(kind, by_kernels=True)
        again, _ = trained(kind, by_kernels=True)
        alone, _ = trained(kind, by_kernels=True, policies=[1])
    assert len(names) > 1
    assert torch.equal(several.online.flat[1], alone.online.flat[0])
    assert torch.equal(several.online.flat, again.online.flat)
    torch.testing.assert_close(one.online.flat, several.online.flat, rtol=1e-3, atol=3e-5)
    for mine, its in zip(told, said, strict=True):
        for name in ("loss", "policy_loss", "value_loss", "entropy", "kl", "clipped"):
            found, wanted = getattr(mine, name), getattr(its, name)
            np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-5, err_msg=name)
        assert (mine.samples == its.samples).all()


def test_what_a_thread_raises_is_raised():
    with parallel_parts.parts_at_once(2), pytest.raises(ZeroDivisionError):
        list(parallel_parts.each(lambda part: 1 / part, [1, 0]))


def failing(monkeypatch, fails):
    """Train in pieces of 5 rows, in two threads; `fails` gets the number of the forward pass."""
    in_pieces_of(5, monkeypatch)
    algorithm = make_stack(CONVOLVES[0], range(1))
    room = room_for(algorithm, LENGTH * 8)
    fill(room, 0, [8, 8, 8], algorithm, np.random.default_rng(0))
    forward, counter = autograd.Autograd.forward, itertools.count()

    def noted(self, batch, pick):
        if torch.is_grad_enabled():
            fails(next(counter))
        return forward(self, batch, pick)

    monkeypatch.setattr(autograd.Autograd, "forward", noted)
    with parallel_parts.parts_at_once(2):
        algorithm.update(room, [0])


def test_none_waits_for_a_piece_that_failed(monkeypatch):
    def fails(number):
        if number == 0:
            raise KeyError

    with refuses(KeyError):
        failing(monkeypatch, fails)


def test_a_piece_that_fails_is_told_whatever_piece_is_still_at_work(monkeypatch):
    """Red before: the piece before it was told that one had failed, and nobody which."""
    failed = threading.Event()

    def fails(number):
        if number == 1:
            failed.set()
            raise KeyError
        assert failed.wait(60)

    with refuses(KeyError):
        failing(monkeypatch, fails)
