"""Calls by Ray whose own process here is gone."""

import types

from refusals import refuses
from remuda.cluster.ray_calls import RayCall
from remuda.errors import NodeLostError


def test_an_answer_that_ray_cannot_bring_any_more_is_lost_and_not_asked_for():
    """Asked for it, Ray would end the program, without a word."""

    def wait(*_, **__):
        raise BrokenPipeError(32, "Broken pipe")

    ray = types.SimpleNamespace(wait=wait)  # it has nothing else that could be asked
    call = RayCall(ray, object(), "far", "")
    assert call.done()
    with refuses(NodeLostError):
        call.result(0.0)
