"""Where roles go whose node is gone: to nodes that have what they need."""

from remuda.cluster.nodes import NodeInfo
from remuda.cluster.placement import Offer, Placement, without


def offer(number, cores, gpus=0, **labels):
    return Offer(number, cores, gpus, True, NodeInfo(number, f"n{number}", "", 1, 1, gpus, labels))


def test_learners_go_where_their_gpu_or_label_is_and_elsewhere_where_none_is():
    placement = Placement((0,), (9, 9, 9))
    offers = [offer(0, 64), offer(1, 1, gpus=2), offer(2, 1, kind="big")]
    needs = (("cuda:0", "cpu", "cpu"), ("", "kind=big", ""))
    assert without(placement, 9, offers, *needs).learners == (1, 2, 0)
    assert without(placement, 9, offers[:1], *needs).learners == (0, 0, 0)
