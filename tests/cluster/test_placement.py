"""Who lives where: every role has one home, and moves only where it must."""

from hypothesis import assume, given
from hypothesis import strategies as st

from refusals import refuses
from remuda.cluster.nodes import HEAD, Need, NodeInfo, Placement, place, relieved, without


def offer(number, cores=2, gpus=0, plays=True, labels=None):
    return NodeInfo(number, f"node-{number}", "10.0.0.1", cores, gpus, labels or {}, plays)


@st.composite
def clusters(draw):
    count = draw(st.integers(1, 6))
    others = st.lists(st.integers(1, 20), min_size=count - 1, max_size=count - 1, unique=True)
    numbers = [HEAD, *draw(others)]
    return [
        offer(n, draw(st.integers(1, 16)), draw(st.integers(0, 3)), draw(st.booleans()))
        for n in numbers
    ]


needs = st.lists(st.sampled_from([Need("cpu"), Need("cuda:0")]), min_size=1, max_size=8)


@given(clusters(), st.integers(1, 12), needs, st.booleans())
def test_every_role_has_a_home_among_the_nodes(offers, actors, on, lead):
    plays = {o.number for o in offers if o.plays}
    if not plays:
        with refuses(LookupError, "actor.nodes"):
            place(offers, actors, on, lead)
        return
    found = place(offers, actors, on, lead)
    assert (len(found.actors), len(found.learners), found.epoch) == (actors, len(on), 1)
    assert set(found.learners) <= {o.number for o in offers}
    assert set(found.actors[lead:]) <= plays
    if lead:
        assert found.actors[0] == HEAD, "the lead of a population is elsewhere"
    gpus = {o.number: o.gpus for o in offers}
    wanted = sum(need.device != "cpu" for need in on)
    served = sum(
        need.device != "cpu" and gpus[n] > 0 for need, n in zip(on, found.learners, strict=True)
    )
    assert served == (wanted if any(gpus.values()) else 0), "a learner has no GPU; there is one"
    for n, most in gpus.items():
        own = sum(
            need.device != "cpu" and home == n
            for need, home in zip(on, found.learners, strict=True)
        )
        assert own <= max(most, 1) or wanted > sum(gpus.values())
    assert place(offers, actors, on, lead) == found, "another one for the same nodes"


@given(clusters(), st.integers(1, 12), st.integers(1, 6))
def test_roles_are_spread_by_cores(offers, actors, learners):
    offers = [offer(o.number, o.cores) for o in offers]
    found = place(offers, actors, [Need()] * learners)
    lack = {o.number: len(found.roles_of(o.number)) - o.cores for o in offers}
    if actors + learners <= sum(o.cores for o in offers):
        assert max(lack.values()) <= 0, "two share a core while another is free"
    used = [n for n in lack if found.roles_of(n)]
    assert max((lack[n] for n in used), default=0) - min(lack.values()) <= 1


def test_a_label_wins_and_one_that_no_node_has_is_named():
    offers = [offer(0), offer(1, gpus=4), offer(2, cores=1, labels={"disk": "fast"})]
    found = place(offers, 1, [Need("cuda:0", "disk=fast"), Need(label="node-1"), Need()])
    assert found.learners[:2] == (2, 1)
    with refuses(LookupError):
        place(offers, 1, [Need(label="tape")])


@given(clusters(), st.integers(1, 12), needs, st.booleans(), st.data())
def test_roles_of_nodes_that_are_gone_move_and_no_other(offers, actors, on, lead, data):
    assume(len(offers) > 1 and any(o.plays for o in offers))
    before = place(offers, actors, on, lead)
    others = [o.number for o in offers if o.number != HEAD]
    gone = data.draw(st.sets(st.sampled_from(others), min_size=1))
    left = [o for o in offers if o.number not in gone]
    after = without(before, gone, left, on)
    assert after.epoch == before.epoch + 1
    for role, (old, new) in enumerate(zip(before.homes, after.homes, strict=True)):
        assert new in {o.number for o in left}
        if old not in gone:
            assert new == old, "it moved though its node is there"
        elif role < actors and any(o.plays for o in left):
            assert new in {o.number for o in left if o.plays}


@given(clusters(), st.integers(1, 20), needs, st.integers(1, 8), st.booleans())
def test_a_node_that_comes_relieves_those_that_lack_cores(offers, actors, on, cores, plays):
    assume(any(o.plays for o in offers))
    before = place(offers, actors, on)
    new = offer(30, cores, plays=plays)
    after = relieved(before, [*offers, new], 30)
    if after is None:
        spare = not plays or not any(
            len(before.roles_of(o.number)) > o.cores and o.number in before.actors[1:]
            for o in offers
        )
        assert spare, "it was not relieved"
        return
    assert plays
    assert after.epoch == before.epoch + 1, "one step for all that move"
    assert after.learners == before.learners
    assert after.actors[0] == before.actors[0], "the first actor may lead a population"
    assert 1 <= len(after.roles_of(30)) <= cores
    changed = [a for a, b in zip(before.homes, after.homes, strict=True) if a != b]
    for home in set(changed):
        own = next(o for o in offers if o.number == home)
        assert len(after.roles_of(home)) >= own.cores, "one moved that had a core"


@given(clusters(), st.integers(1, 12), needs)
def test_a_link_is_known_at_both_ends_and_the_head_has_one_to_all(offers, actors, on):
    assume(any(o.plays for o in offers))
    found = place(offers, actors, on)
    for node in found.nodes:
        for peer in found.peers_of(node):
            assert node in found.peers_of(peer)
        if node != HEAD:
            assert HEAD in found.peers_of(node)
    for actor in found.actors:
        for learner in found.learners:
            assert actor == learner or learner in found.peers_of(actor)


def test_moved_roles_are_of_the_next_epoch():
    placement = Placement((0, 1), (1,), 3)
    assert placement.moved({1: 0, 2: 2}) == Placement((0, 0), (2,), 4)
