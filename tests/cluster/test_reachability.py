"""Nodes that the head reaches, and that do not reach each other, are told."""

import pytest

from cluster.node_runs import NodeRun, ProcessNodes
from cluster_nodes import until
from remuda.cluster.channel import Count
from remuda.cluster.member import LinkMonitor
from remuda.cluster.nodes import Placement

OPEN = [int(count == Count.IS_OPEN) for count in Count]
CLOSED = [0 for _ in Count]


def test_a_pair_is_told_once_it_lacks_its_link_for_too_long_and_once_in_a_placement():
    reach, first = LinkMonitor(0.0), Placement((1,), (2, 0))
    links = {1: [OPEN, CLOSED, CLOSED], 2: [OPEN, CLOSED, CLOSED]}
    assert reach.missing(first, {1: [], 2: []}) == []  # they told nothing yet
    assert until(lambda: reach.missing(first, links), 5.0)[0] == [(2, 1)]
    assert reach.missing(first, links) == []
    after = Placement((1,), (2, 0), 2)
    assert until(lambda: reach.missing(after, links), 5.0)[0] == [(2, 1)]
    links[2][1] = OPEN
    assert LinkMonitor(0.0).missing(first, links) == []
    assert LinkMonitor(60.0).missing(first, {2: [OPEN, CLOSED, CLOSED]}) == []


@pytest.mark.slow
def test_a_run_tells_of_nodes_that_do_not_reach_each_other(tmp_path):
    settings = {"env": {"num_envs": 4}, "cluster": {"local": 2, "silence": 2.0}}
    run = NodeRun(tmp_path, settings, (4,), ((0,), (1,)), ((1,), (0, 2)), ProcessNodes(3))
    run.runtime.addresses[1] = ("127.0.0.1", 1)  # nobody listens there
    told = []
    try:
        run.runtime.start(lambda: False)
        # Processes may report first that they compile.
        until(
            lambda: (
                run.runtime.run_for(0.1)
                or told.extend(run.runtime.news())
                or any("cannot reach" in line for line in told)
            ),
            20.0,
        )
    finally:
        run.stop()
    assert any("node node-2 cannot reach node node-1" in line for line in told)
