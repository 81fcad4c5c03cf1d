"""Networks that a user might bring along."""

import threading
import warnings
from typing import ClassVar

import torch
from torch import nn


def small(shape):
    size = int(torch.Size(shape).numel())
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh())


class Wide(nn.Module):
    """Has a constant buffer, and an option."""

    def __init__(self, shape, units=12):
        super().__init__()
        self.first = nn.Linear(int(torch.Size(shape).numel()), units)
        self.norm = nn.LayerNorm(units)
        self.register_buffer("scale", torch.full((units,), 0.5))

    def forward(self, x):
        return self.norm(torch.relu(self.first(x.flatten(1)))) * self.scale


class Ordered(nn.Module):
    """Has constant buffers that are no real numbers."""

    def __init__(self, shape):
        super().__init__()
        size = int(torch.Size(shape).numel())
        self.first = nn.Linear(size, 6)
        self.register_buffer("order", torch.arange(size).flip(0))
        self.register_buffer("open", torch.arange(6) % 2 == 0)

    def forward(self, x):
        x = self.first(x.flatten(1).index_select(1, self.order))
        return torch.where(self.open, x, -x.tanh())


class Shaped(nn.Module):
    """Notes what it was made for, and what it is called with."""

    noted: ClassVar[set] = set()

    def __init__(self, shape):
        super().__init__()
        self.shape, self.first = tuple(shape), nn.Linear(int(torch.Size(shape).numel()), 4)

    def forward(self, x):
        Shaped.noted.add((self.shape, tuple(x.shape[1:])))
        return self.first(x.flatten(1))


class Branching(nn.Module):
    """Looks at numbers to decide what it does, which no `vmap` can follow."""

    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(int(torch.Size(shape).numel()), 6)

    def forward(self, x):
        x = self.layer(x.flatten(1))
        return x if float(self.layer.bias.detach().sum()) > 0.0 else -x


class Remembers(nn.Module):
    """Recurrent: it keeps a trace of what it saw."""

    def __init__(self, shape, state_size=7):
        super().__init__()
        self.state_size = state_size
        self.seen = nn.Linear(int(torch.Size(shape).numel()), state_size)
        self.kept = nn.Linear(state_size, state_size)
        self.head = nn.Linear(state_size, 9)

    def forward(self, x, state):
        state = torch.tanh(self.seen(x.flatten(1)) + self.kept(state))
        return torch.relu(self.head(state)), state


class Gated(nn.Module):
    def __init__(self, shape, state_size=16):
        super().__init__()
        self.state_size = state_size
        self.inputs = nn.Linear(shape[0], 32)
        self.cell = nn.GRUCell(32, state_size)

    def forward(self, observations, state):
        state = self.cell(torch.tanh(self.inputs(observations)), state)
        return state, state


class Long(nn.Module):
    """Has long short-term memory, with its output and its cell in one state."""

    def __init__(self, shape, units=6, layers=2):
        super().__init__()
        self.state_size = 2 * units * layers
        self.cells = nn.ModuleList(
            nn.LSTMCell(units if i else shape[0], units, bias=i == 0) for i in range(layers)
        )

    def forward(self, x, state):
        parts, after = list(state.chunk(2 * len(self.cells), -1)), []
        for cell in self.cells:
            x, kept = cell(x, (parts.pop(0), parts.pop(0)))
            after += [x, kept]
        return x, torch.cat(after, -1)


class OwnCell(nn.LSTMCell):
    """Computes something else than its base."""

    def forward(self, x, state):
        after, kept = super().forward(x, state)
        return -after, kept


class LongOwn(Long):
    def __init__(self, shape):
        super().__init__(shape, layers=1)
        self.cells[0] = OwnCell(shape[0], 6)


class Forgets(Remembers):
    def forward(self, x, state):
        return super().forward(x, state)[0]


class Shrinks(Remembers):
    def forward(self, x, state):
        features, state = super().forward(x, state)
        return features, state[:, 1:]


def drops(shape):
    return nn.Sequential(nn.Linear(shape[0], 4), nn.Dropout(0.5))


def square(shape):
    return list(shape)  # no module


def keeps_shape(shape):
    return nn.Unflatten(1, (1, shape[0]))


def breaks(shape):
    return nn.Sequential(nn.Linear(shape[0] + 1, 4))


class Fussy(nn.Module):
    def __init__(self):
        super().__init__()
        raise RuntimeError("no network today")


shared = nn.Linear(5, 5)


class Stops(nn.Module):
    """Stops between two layers where a test says so."""

    between = staticmethod(lambda: None)

    def __init__(self, shape):
        super().__init__()
        size = int(torch.Size(shape).numel())
        self.first, self.second = nn.Linear(size, 4), nn.Linear(4, 3)

    def forward(self, x):
        x = self.first(x.flatten(1))
        Stops.between()
        return self.second(x)


class Locked(nn.Linear):
    """Has something that cannot be copied."""

    def __init__(self, shape):
        super().__init__(int(torch.Size(shape).numel()), 3)
        self.lock = threading.Lock()


class Counts(nn.Module):
    """Adds to a buffer in each call, and goes by it."""

    def __init__(self, shape):
        super().__init__()
        self.linear = nn.Linear(int(torch.Size(shape).numel()), 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1.0
        return self.linear(x.flatten(1)) * self.calls


class Nested(nn.Module):
    """Has parts whose names end as those of whole modules do."""

    def __init__(self, shape):
        super().__init__()
        size = int(torch.Size(shape).numel())
        self.weight = nn.Parameter(torch.ones(size))
        self.my_module = nn.Linear(size, 4)

    def forward(self, x):
        return self.my_module(x.flatten(1) * self.weight)


class Attends(nn.Module):
    """A transformer over the numbers of an observation."""

    def __init__(self, shape, dropout=0.0, layers=1):
        super().__init__()
        self.embed = nn.Linear(1, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)

    def forward(self, x):
        return self.encoder(self.embed(x.flatten(1).unsqueeze(-1))).mean(1)


def lazy():
    return nn.Sequential(nn.LazyLinear(6), nn.Tanh(), nn.LazyLinear(4))


class LazyRemembers(nn.Module):
    """A recurrent module with a lazy layer."""

    state_size = 4

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 4)
        self.inputs = nn.LazyLinear(6)

    def forward(self, x, state):
        state = self.cell(self.inputs(x), state)
        return state, state


def lazy_norm():
    return nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d())


class LazyUnused(nn.Module):
    """A module with a lazy layer that `forward` does not call."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.LazyLinear(3), nn.LazyLinear(3)

    def forward(self, x):
        return self.used(x)


class AttendsAtRandom(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attention = nn.MultiheadAttention(shape[0], 1, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.attention(x[:, None], x[:, None], x[:, None])[0].flatten(1)


def random_rectifier(shape):
    return nn.Sequential(nn.Linear(shape[0], 4), nn.RReLU())


class Complex(nn.Linear):
    def __init__(self, shape):
        super().__init__(shape[0], 3)
        self.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64))


def scripted(shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(nn.Linear(shape[0], 3))


class Fuses(nn.Module):
    """Gets an observation's parts by their names; stacked frames of a picture are its channels."""

    takes_parts = True

    def __init__(self, shapes):
        super().__init__()
        self.shapes = shapes
        *channels, _, _ = shapes["picture"]
        self.see = nn.Conv2d(int(torch.Size(channels).numel()), 3, 3)
        self.rest = nn.LazyLinear(5)

    def forward(self, parts):
        assert {k: tuple(v.shape[1:]) for k, v in parts.items()} == self.shapes
        seen = self.see(parts["picture"].flatten(1, -3)).flatten(1)
        others = [parts[name].flatten(1) for name in ("inside.0", "inside.1")]
        return torch.relu(torch.cat((seen, self.rest(torch.cat(others, 1))), 1))


class FusesAndRemembers(Fuses):
    state_size = 5

    def forward(self, parts, state):
        features = super().forward(parts)
        return features, torch.tanh(features[:, -5:] + state)


def fuses_untold(shapes):
    return Fuses({"picture": (1, 6, 6), "inside.0": (3,), "inside.1": (2,)})


class Misreads(Fuses):
    def forward(self, parts):
        return parts["camera"]
