"""Modules of the user's that act: a copy for each policy, which looks at its weights."""

import copy

import pytest
import torch

from policies import own_networks
from remuda.policies.networks.lifted import MAX_SEPARATE, LiftedModule

OWN = "policies.own_networks"


def weights_of(encoder, policies, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = encoder.shapes("hidden")
    return {n: torch.randn(policies, *s, generator=generator) for n, s in shapes.items()}


def passes(encoder, weights, x, state):
    return (
        encoder.step("hidden", weights, x, state)
        if encoder.memory
        else (encoder.features("hidden", weights, x),)
    )


@pytest.mark.parametrize(
    "module", ["small", "Wide", "Ordered", "Branching", "Long", "Gated", "Nested"]
)
@pytest.mark.parametrize("policies", [1, 3, MAX_SEPARATE + 1])
def test_they_compute_what_all_of_them_do_together(module, policies):
    encoder = LiftedModule(f"{OWN}:{module}", {}, (5,))
    weights = weights_of(encoder, policies)
    x, state = torch.randn(policies, 4, 5), torch.randn(policies, 4, encoder.memory)
    expected = passes(encoder, weights, x, state)
    with torch.inference_mode():
        encoder.bind(weights)
        found = passes(encoder, weights, x, state)
        part = {name: weight[1:] for name, weight in weights.items()}
        some = passes(encoder, part, x[1:], state[1:]) if policies > 1 else None
        for weight in weights.values():  # newer ones come to the same place
            weight.mul_(0.5)
        newer = passes(encoder, weights, x, state)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(some or (), expected, strict=False):
        torch.testing.assert_close(ours, theirs[1:])
    for ours, theirs in zip(newer, passes(encoder, weights, x, state), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert not torch.allclose(newer[0], found[0])


def test_weights_elsewhere_are_not_taken_for_them():
    encoder = LiftedModule(f"{OWN}:small", {}, (5,))
    x = torch.randn(2, 4, 5)
    with torch.inference_mode():
        encoder.bind(weights_of(encoder, 2))
        for seed in range(1, 20):  # memory is used again and again
            weights = weights_of(encoder, 2, seed)
            found = encoder.features("hidden", weights, x)
            for k in range(2):
                own = {name: weight[k : k + 1].clone() for name, weight in weights.items()}
                alone = encoder.features("hidden", own, x[k : k + 1])
                torch.testing.assert_close(found[k], alone[0])


def test_a_copy_looks_at_no_weights():
    encoder = LiftedModule(f"{OWN}:small", {}, (5,))
    weights, x = weights_of(encoder, 2), torch.randn(2, 4, 5)
    with torch.inference_mode():
        encoder.bind(weights)
        other = copy.deepcopy(encoder)
        weights["hidden_module.1.weight"].mul_(2.0)
        found = other.features("hidden", weights, x)
        torch.testing.assert_close(found, encoder.features("hidden", weights, x))


def test_what_a_module_puts_into_a_buffer_is_for_one_call():
    encoder = LiftedModule(f"{OWN}:Counts", {}, (5,))
    weights, x = weights_of(encoder, 2), torch.randn(2, 4, 5)
    with torch.inference_mode():
        expected = encoder.features("hidden", weights, x)
        encoder.bind(weights)
        for _ in range(2):
            torch.testing.assert_close(encoder.features("hidden", weights, x), expected)


def test_the_tried_module_is_called_by_those_that_act(monkeypatch):
    """And no `vmap`, which takes a millisecond."""
    encoder = LiftedModule(f"{OWN}:Stops", {}, (5,))
    weights, called = weights_of(encoder, 3), []
    monkeypatch.setattr(own_networks.Stops, "between", staticmethod(lambda: called.append(1)))
    with torch.inference_mode():
        encoder.bind(weights)
        encoder.features("hidden", weights, torch.randn(3, 4, 5))
    assert len(called) == 3
