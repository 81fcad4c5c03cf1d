"""The GPUs that are not there refuse what CUDA refuses, and compute what the processor does."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from devices.fake_gpus import GPUTensor, fake_gpus
from refusals import refuses


@pytest.fixture
def gpus():
    with fake_gpus(2) as found:
        yield found


def made():
    return torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3).to("cuda:0")


@pytest.mark.parametrize(
    "mixed",
    [
        lambda here, there: there + here,
        lambda here, there: here * there,
        lambda here, there: there @ here.T,
        lambda here, there: torch.cat((there, here)),
        lambda here, there: torch.stack((there[0, 0], here[0, 0])),
        lambda here, there: torch.where(here > 0, there, there),
        lambda here, there: here.add_(there),
        lambda here, there: there.sub_(here),
        lambda here, there: here + there[0, 0],
        lambda here, there: there.gather(0, here.long() % 2),
        lambda here, there: there.index_select(0, torch.zeros(1, dtype=torch.int64)),
        lambda here, there: here[there.long() % 2],
        lambda here, there: torch.matmul(there, here.T, out=torch.zeros(2, 2)),
        lambda here, there: there.uniform_(generator=torch.Generator()),
        lambda here, there: torch.randn(2, device="cuda", generator=torch.Generator()),
        lambda here, there: there + here.to("cuda:1"),
        lambda here, there: vmap(lambda x, y: x + y)(here, there),
        lambda here, there: vmap(lambda x: x + torch.ones(3))(there),
    ],
)
def test_it_refuses_to_mix_devices(gpus, mixed):
    here, there = made()
    with refuses(RuntimeError):
        mixed(here, there)


@pytest.mark.parametrize("look", [lambda x: x.numpy(), np.asarray, lambda x: x.data_ptr()])
def test_its_memory_cannot_be_looked_at_from_here(gpus, look):
    _, there = made()
    with pytest.raises((TypeError, RuntimeError)):
        assert look(there) is None


@pytest.mark.slow_cases("<lambda>0")
@pytest.mark.parametrize(
    "allowed",
    [
        lambda here, there: there + here[0, 1].to("cpu"),
        lambda here, there: torch.tensor(2.0) * there,
        lambda here, there: there.mul_(torch.tensor(2.0)),
        lambda here, there: there.masked_fill(there > 1, torch.tensor(0.0)),
        lambda here, there: there[torch.tensor([1, 0])],
        lambda here, there: there.copy_(2 * here),
        lambda here, there: torch.zeros(2, 3).copy_(there),
        lambda here, there: there + here.to(there.device),
        lambda here, there: there.clamp(max=2.0).to(torch.float64),
        lambda here, there: torch.tensor([[1.0], [2.0]], device=there.device) * there,
        lambda here, there: torch.arange(3, device=there.device) + there,
        lambda here, there: vmap(lambda x: x + torch.ones(3, device=x.device))(there),
    ],
)
def test_what_may_mix_is_computed_as_on_the_processor(gpus, allowed):
    here, there = made()
    expected = allowed(here.clone(), here.clone())
    torch.testing.assert_close(allowed(here, there).cpu(), expected)


def test_it_says_where_it_is(gpus):
    here, there = made()
    assert isinstance(there, GPUTensor)
    assert there.is_cuda
    assert str(there.device) == str(there[0].device) == str(torch.zeros_like(there).device)
    assert there.to("cuda:0") is there.to("cuda") is there
    assert there.to("cuda:0", copy=True) is not there
    assert str(there.to("cuda:1").device) == "cuda:1"
    assert not isinstance(there.cpu(), GPUTensor)
    assert there.cpu().data_ptr() != there.inner.data_ptr()
    assert float(there[1, 2]) == 5.0
    assert there.tolist() == here.tolist()
    view = there[:, 1:].detach().requires_grad_()
    there.copy_(here + 1.0)
    assert view.tolist() == (here[:, 1:] + 1.0).tolist()
    there[0] = 0.0
    assert not there[0].any()


def test_gradients_are_those_of_the_processor(gpus):
    layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    inputs = torch.randn(5, 2, 3)

    def gradients(device):
        stacked = {
            name: torch.stack([value.detach()] * 5).to(device).requires_grad_()
            for name, value in layers.named_parameters()
        }
        out = vmap(lambda own, x: functional_call(layers, own, (x,)))(stacked, inputs.to(device))
        return torch.autograd.grad((out**2).mean(), list(stacked.values()))

    for one, other in zip(gradients("cuda:0"), gradients("cpu"), strict=True):
        assert isinstance(one, GPUTensor)
        torch.testing.assert_close(one.cpu(), other)


def test_what_is_computed_here_is_counted(gpus):
    here, there = made()
    gpus.on_cpu.clear()
    there @ there.T
    assert not gpus.on_cpu
    here @ here.T
    assert set(gpus.on_cpu) == {"mm"}
    assert "mm" in gpus.on_gpu
