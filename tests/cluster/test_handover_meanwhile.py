"""What a node writes down for roles that come to it, while others there go on."""

from types import SimpleNamespace

import numpy as np
import pytest

from remuda.assembly.assembly import Assembly
from remuda.cluster.channel import Count, Traffic
from remuda.cluster.handover import rings_of, take_over
from remuda.cluster.migration import Migration, Move
from remuda.cluster.nodes import HEAD, Placement
from remuda.cluster.words import Words
from remuda.cluster.words import np as arrays
from remuda.config import load_config
from remuda.experience.experience import NEVER
from remuda.experience.ring import TAKEN, TAKEN_STEPS
from remuda.population.members.follower_views import TAKEN as TAKEN_RESULTS
from remuda.runtime.layout import Layout
from remuda.system.checkpoint.store import Checkpoints
from remuda.training.prepare import prepare

POPULATION = {
    "game": "connect_four",
    "population": {"policies": 2, "matchmaker": "round_robin"},
    "env": {"num_envs": 4},
}


class MoveCounts:
    """A move as the head's own end of it goes; something happens before it is written down."""

    def __init__(self, path, settings, copies, before, after):
        config = load_config({"cluster": {"local": 2}} | settings)
        prepared = prepare(config)
        count = len(prepared.specs)
        layout = Layout(copies, (tuple(range(count)),), ("cpu",) * count)
        self.assembly = Assembly(
            prepared.spec,
            layout,
            specs=prepared.specs,
            sparse=True,
        )
        self.names = [spec.name for spec in prepared.specs]
        self.checkpoints = Checkpoints(path)
        self.move = Move(Placement(*before), Placement(*after, 2))

    def go(self, meanwhile):
        movers = Migration(SimpleNamespace(assembly=self.assembly), None, self.checkpoints)
        rings = rings_of(self.assembly, self.move.actors, self.names)
        handover = movers.handovers(self.move, rings, (HEAD,))[HEAD]
        meanwhile()
        take_over(self.assembly, handover, self.checkpoints)


@pytest.mark.parametrize("word", [TAKEN, TAKEN_STEPS])
def test_what_a_learner_takes_while_an_actor_comes_to_its_node_stays_taken(tmp_path, word):
    moved = MoveCounts(tmp_path, {"game": "treasure_hunt"}, (1,), ((1,), (0,)), ((0,), (0,)))
    counters = moved.assembly.experience[moved.names[0]].rings[0].counters
    moved.go(lambda: counters.__setitem__(word, 7))
    assert counters[word] == 7


def test_a_learner_that_comes_never_takes_what_was_taken_by_what_is_known_here(tmp_path):
    moved = MoveCounts(tmp_path, {"game": "treasure_hunt"}, (1,), ((0,), (1,)), ((0,), (0,)))
    counters = moved.assembly.experience[moved.names[0]].rings[0].counters
    moved.go(lambda: counters.__setitem__(TAKEN, 7))
    assert counters[TAKEN] == NEVER  # its successor passes over what was closed until then


def test_a_lead_takes_no_result_twice_when_a_follower_comes_to_its_node(tmp_path):
    moved = MoveCounts(tmp_path, POPULATION, (2, 2), ((0, 1), (0,)), ((0, 0), (0,)))
    shard = moved.assembly.table.shards[0]
    moved.go(lambda: shard.set_word(TAKEN_RESULTS, 5))
    assert shard.word(TAKEN_RESULTS) == 5


def test_a_word_is_never_newer_than_those_that_were_written_before_it(monkeypatch):
    first, last = np.zeros(1, np.int64), np.zeros(1, np.int64)
    words, take = Words([(first, [0]), (last, [0])]), arrays.take

    def read_while_both_are_written(*args, **keys):
        take(*args, **keys)
        first[0] = last[0] = 1  # in this order, by another process

    monkeypatch.setattr(arrays, "take", read_while_both_are_written)
    found = words.read().tolist()
    assert found[1] <= found[0]


def test_traffic_counts_on_over_a_connection_that_lies_where_another_lay(monkeypatch):
    monkeypatch.setattr("builtins.id", lambda _: 7)
    traffic = Traffic(2)
    for sent in (100, 10):
        traffic.note(1, SimpleNamespace(sent_bytes=sent, received_bytes=0, frames=1), None)
    assert traffic.counts[1, Count.SENT_BYTES] == 110
