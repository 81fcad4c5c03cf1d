"""Random streams: named, repeatable, and none equal to another."""

import torch

from remuda.streams import stream, torch_stream


def test_a_name_gives_the_same_stream_again():
    assert stream(3, "actor", "agent_0").random() == stream(3, "actor", "agent_0").random()
    first, second = (torch.rand(3, generator=torch_stream(3, "learner", 1)) for _ in range(2))
    assert torch.equal(first, second)


def test_no_two_streams_are_equal():
    names = [(0, "a"), (1, "a"), (0, "b"), (0, "a", "b"), (0, "a", 0), (0, "a", 1)]
    assert len({stream(*name).integers(2**62) for name in names}) == len(names)
    assert len({torch_stream(*name).initial_seed() for name in names}) == len(names)
