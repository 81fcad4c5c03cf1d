"""One of several actors that deal a population dies, at any line, and its successor goes on."""

import pytest

from population.follower_worlds import COPIES, A, B, World, at_line
from remuda.config.hyperparameters import HYPERPARAMETERS
from remuda.population.directors.director import Birth, Freeze, Retire, Vacate
from remuda.population.matchmaking.by_turn import Fixed, Random
from remuda.population.members.table_parts import MATCHES, NO_POLICY, POLICY


class Renewing:
    """A director that has `a` replaced by a copy of `b`, and copies of `b` kept and dropped."""

    def step(self, population, ledger, versions):
        commands = []
        if "a" in population.empty:
            commands.append(Birth("a", B, {HYPERPARAMETERS[0]: 0.25}))
        elif A in population and population[A].parent is None:
            commands.append(Vacate("a"))
        past = population.past_of("b")
        if population.matches % 3 == 0:
            commands.append(Retire(past[0].ref) if past else Freeze("b"))
        return commands

    def state(self):
        return {}

    def restore(self, state):
        pass


KINDS = {
    "with a stand-in": (("a", "b"), lambda: Fixed(["a", "b"])),
    "without": (("a", "b", "c"), lambda: Random(2)),
    "beside a scripted member": (("a", "b"), lambda: Random(2), ("bot",)),
}


TURNS = 10


def begin(kind):
    names, make, *scripted = KINDS[kind]
    world = World(names, make, frozen=2, stand_ins=True, scripted=sum(scripted, ()))
    for actor in range(2):
        world.begin(actor)
    world.round()
    world.begin(0, Renewing())
    return world


def play(kind, victim, death):
    """Play until `a` is replaced, with a death; returns the world and whether it happened."""
    world, end = begin(kind), at_line(death)
    for _ in range(TURNS):
        for actor in range(2):
            if actor != victim or end.reached:
                world.turn(actor)
                continue
            with end:
                world.turn(actor)
            if end.reached:
                world.turn(1 - actor)  # the other plays on meanwhile
                world.learn()
                world.begin(actor, Renewing())
        world.learn()
    return world, end.reached


@pytest.mark.slow_cases(
    "beside a scripted member-follower-67",
    "beside a scripted member-lead-67",
    "with a stand-in-lead-67",
    "without-follower-67",
    "without-lead-67",
)
@pytest.mark.parametrize("stride", [67, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("victim", [0, 1], ids=["lead", "follower"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_is_born_in_its_slot_and_no_result_is_lost_or_there_twice(kind, victim, stride):
    for death in range(0, 100_000, stride):
        world, died = play(kind, victim, death)
        world.check()
        play_on(world, f"death at line {death}")
        # Counted exactly, unless a lead died over it: then up to what it had at hand is not.
        told, found = world.games_in_ledger()["b"], world.games()["b"]
        at_hand = 0 if victim or not died else 2 * sum(COPIES)
        assert abs(told - found) <= at_hand
        assert 0 <= len(world.matches()) - world.table.word(MATCHES) <= at_hand
        if not died:
            break
    assert death > 100


@pytest.mark.slow_cases(
    "beside a scripted member-lead-67",
    "with a stand-in-follower-67",
    "with a stand-in-lead-67",
    "without-follower-67",
    "without-lead-67",
)
@pytest.mark.parametrize("stride", [67, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("slow", [0, 1], ids=["lead", "follower"])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_the_other_does_between_any_two_lines(kind, slow, stride):
    """The other plays turns in the middle of one: no result is lost, no slot emptied too soon."""
    for line in range(0, 100_000, stride):
        world = begin(kind)
        between = at_line(line, lambda world=world: [world.turn(1 - slow) for _ in range(3)])
        for _ in range(TURNS):
            with between:
                world.turn(slow)
            world.turn(1 - slow)
            world.learn()
        world.check()
        play_on(world, f"between line {line} and the next")
        assert world.games_in_ledger()["b"] == world.games()["b"]
        assert len(world.matches()) == world.table.word(MATCHES)
        if not between.reached:
            break
    assert line > 100


@pytest.mark.parametrize("stride", [67, pytest.param(7, marks=pytest.mark.slow)])
def test_a_run_that_ends_with_its_lead_dead_has_all_results_in_its_ledger(stride):
    for death in range(0, 100_000, stride):
        world, end = begin("without"), at_line(death)
        for _ in range(TURNS):
            world.turn(1)
            with end:
                world.turn(0)
            if end.reached:
                world.turn(1)
                break
            world.learn()
        world.table.followers.hand_over()
        numbers = world.matches()["number"].tolist()
        assert len(set(numbers)) == len(numbers)
        assert world.sure <= set(numbers) <= world.closed
        if not end.reached:
            break
    assert death > 100


def play_on(world, when):
    """Play until `a` is replaced for sure, and see that it is, as it should be."""
    for _ in range(40):
        world.round()
        world.check()
    world.lead.settled()
    world.check()
    table, population = world.table, world.lead.population
    assert population[A].parent == B._replace(version=1), when
    assert population[A].hyperparameters[HYPERPARAMETERS[0]] == 0.25
    assert table.births.ordered(0) == table.births.confirmed(0) >= 1
    spare = table.slots.stand_in_of("a")
    assert table.occupants.identity[spare, POLICY] == NO_POLICY
    for acting in world.acting:  # what the learner of `a` takes is the newborn's alone
        assert acting.rings["a"] == {population[A].born}, when
