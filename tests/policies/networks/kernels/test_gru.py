"""The gated recurrent layer against torch.nn.GRU, forward, backward, and differentiated twice."""

import pytest
import torch

from remuda.policies.networks.kernels.gru import run_gru

SIZES = {  # policies, sequences, steps, units
    "acting": (3, 40, 1, 8),
    "odd": (2, 5, 7, 13),
    "many groups": (1, 150, 20, 32),
    "long": (2, 3, 90, 16),
}


def inputs_of(policies, sequences, steps, units, seed=0):
    """Return gates, weight, bias and state of random numbers, all to be differentiated."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (policies, sequences * steps, 3 * units),
        (policies, units, 3 * units),
        (policies, 1, 3 * units),
        (policies, sequences, units),
    ]
    scales = (1.0, units**-0.5, 0.1, 0.5)
    return [
        (torch.randn(shape, generator=generator) * scale).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def by_torch(inputs, burn_in=None):
    """Do the same as `run_gru` with torch.nn.GRUCell, policy by policy, step by step."""
    found = []
    for k in range(len(inputs[0])):
        gates, weight, bias, state = (x[k] for x in inputs)
        units, sequences = weight.shape[0], len(state)
        cell = torch.nn.GRUCell(3 * units, units)
        own = {
            "weight_ih": torch.eye(3 * units),
            "bias_ih": torch.zeros(3 * units),
            "weight_hh": weight.T,
            "bias_hh": bias[0],
        }
        steps = gates.view(sequences, -1, 3 * units)
        states = []
        for t in range(steps.shape[1]):
            if burn_in is not None:
                state = torch.where((burn_in[k] == t)[:, None], state.detach(), state)
            state = torch.func.functional_call(cell, own, (steps[:, t], state))
            states.append(state)
        found.append(torch.stack(states, 1).flatten(0, 1))
    return torch.stack(found)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("burns_in", [False, True], ids=["whole", "burn_in"])
def test_states_and_gradients_equal_those_of_torch(size, burns_in):
    policies, sequences, steps, _ = SIZES[size]
    burn_in = torch.arange(policies * sequences).view(policies, -1) % (steps + 1)
    burn_in = burn_in if burns_in else None
    inputs = inputs_of(*SIZES[size])
    ours, theirs = run_gru(*inputs, burn_in), by_torch(inputs, burn_in)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-6)
    errors = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    for mine, other in zip(
        torch.autograd.grad(ours, inputs, errors),
        torch.autograd.grad(theirs, inputs, errors),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=2e-4, atol=2e-5 * other.abs().max().item())


def test_a_row_does_not_depend_on_others():
    """Of policies, sequences and later steps; the actor has one step, the learner many."""
    gates, weight, bias, state = (x.detach() for x in inputs_of(3, 90, 6, 64))
    whole = run_gru(gates, weight, bias, state).view(3, 90, 6, 64)
    for k, g in [(0, 0), (2, 89), (1, 40)]:
        now = state[k : k + 1, g : g + 1]
        for t in range(6):
            step = gates.view(3, 90, 6, -1)[k : k + 1, g, t : t + 1]
            now = run_gru(step, weight[k : k + 1], bias[k : k + 1], now)
            assert torch.equal(now[0, 0], whole[k, g, t])


def test_with_several_threads_torch_computes_the_same():
    inputs = inputs_of(2, 5, 7, 13)
    ours = run_gru(*inputs)
    torch.set_num_threads(2)
    try:
        theirs = run_gru(*inputs)
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-6)


def test_gradients_can_be_differentiated_again():
    inputs, found = inputs_of(2, 4, 5, 6), []
    for run in (run_gru, by_torch):
        out = run(inputs) if run is by_torch else run(*inputs)
        (by_gates,) = torch.autograd.grad(out.square().sum(), inputs[:1], create_graph=True)
        found.append(torch.autograd.grad(by_gates.square().sum(), inputs))
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


WRONG = {  # argument and shape, of 3 policies, 4 sequences and 8 units
    "a state for one policy": (3, (1, 4, 8)),
    "a weight for one policy": (1, (1, 8, 24)),
    "a weight for fewer units": (1, (3, 4, 24)),
    "a state of fewer units": (3, (3, 4, 4)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_memory_beyond_a_wrong_shape_is_not_read(wrong):
    inputs = [x.detach() for x in inputs_of(3, 4, 2, 8)]
    which, shape = WRONG[wrong]
    inputs[which] = torch.zeros(shape)
    with pytest.raises(RuntimeError):
        run_gru(*inputs)


def test_a_burn_in_for_all_policies_is_repeated():
    inputs = inputs_of(3, 4, 5, 8)
    burn_in = torch.tensor([[2, 0, 5, 3]])
    found = [
        torch.autograd.grad(run_gru(*inputs, each).sum(), inputs)
        for each in (burn_in, burn_in.repeat(3, 1))
    ]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
