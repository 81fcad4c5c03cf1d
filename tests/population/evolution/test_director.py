"""Evolution directs a population that only has numbers: who is replaced, by whom, and how often."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from evolution_stages import FOUR, MATCHMAKERS, RATE, SIZE, Stage
from remuda.config import Config, EvolutionConfig
from remuda.population.directors.director import Birth, Retire
from remuda.population.evolution.fitness import (
    FitnessEstimate,
    FitnessEstimates,
    estimate_fitness,
    unjudged,
)
from remuda.population.evolution.setup import always_one_team, selection
from remuda.population.ledger.records import FRESH, GAMES, REWARD, SQUARES, Member, PolicyRef
from remuda.population.matchmaking.by_turn import SelfPlay
from remuda.population.roster import Roster


@pytest.mark.parametrize("matchmaker", MATCHMAKERS)
@pytest.mark.parametrize("select", ["truncation", "tournament", "t_test"])
@pytest.mark.parametrize("fitness", ["return", "win_rate", "rating"])
def test_the_worst_take_over_from_the_better(matchmaker, select, fitness):
    stage = Stage(FOUR, matchmaker, [0.0, 2.0, 4.0, 6.0], select=select, fitness=fitness)
    while len(stage.born()) < 3:
        stage.turn()
    rank = {name: i for i, name in enumerate(FOUR)}
    assert all(rank[policy] < rank[parent] for policy, parent in stage.born())
    if select == "truncation":
        assert stage.born()[0] == ("a", "d")
    rates = stage.rates()
    assert len(rates) == len(stage.born())
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)
    specified = [1e-3 * (i + 1) for i in range(4)]
    assert not np.isclose(rates[0], specified).any()


@pytest.mark.parametrize(
    ("fitness", "expected"),
    [
        ("return", ("a", "others")),
        ("team_return", ("others", "a")),
        ("game/harmony", ("others", "a")),
        ("game/harmony:min", ("a", "others")),
        ("game/trouble:max", ("a", "others")),
        ("game/trouble:min", ("others", "a")),
        (("game/weather", "game/trouble:min"), ("others", "a")),
        (("game/trouble", "game/harmony:min"), ("a", "others")),
    ],
)
def test_who_brings_others_most_is_the_best_by_what_the_team_earns(fitness, expected):
    """`a` earns least itself, and whoever plays with it earns most."""
    select = "truncation" if isinstance(fitness, str) else "non_dominated"
    stage = Stage(FOUR, "random", [0.0, 3.0, 3.0, 3.0], fitness=fitness, select=select)
    stage.gifts[0] = 8.0
    while not stage.born():
        stage.turn()
    policy, parent = stage.born()[0]
    assert tuple("a" if name == "a" else "others" for name in (policy, parent)) == expected


class Rival(Stage):
    """Another director retires parents at the moment when they are to have a child."""

    left = 0

    def director(self):
        evolution, stage = super().director(), self

        class Both:
            state = staticmethod(evolution.state)

            def step(self, population, ledger, versions):
                commands = evolution.step(population, ledger, versions)
                births = [command for command in commands if isinstance(command, Birth)]
                stage.left += len(births)
                return [*(Retire(birth.parent) for birth in births), *commands]

        return Both()


def test_a_parent_that_leaves_as_its_child_is_ordered_has_none():
    """Red before: the birth was refused as a fault, and the actor was gone."""
    stage = Rival(FOUR, "random", [0.0, 2.0, 4.0, 6.0])
    for _ in range(400):
        stage.turn()
        assert stage.league.population.learning
    assert stage.left > 10
    assert stage.born()  # of the last that is left, which cannot be done without
    assert all(policy != parent for policy, parent in stage.born())


@pytest.mark.slow
def test_a_newborn_is_judged_by_its_own_games_alone():
    """What the game told in those of the policy before it in its slot does not count for it."""
    stage = Stage(FOUR, "random", [0.0, 1.0, 2.0, 3.0], fitness="game/harmony:min")
    while not stage.born():
        stage.turn(learns=False)
    slot = FOUR.index(stage.born()[0][0])
    others = [i for i in range(4) if i != slot]
    told = stage.table.numbers[:4, len(FRESH) :]
    assert told.shape == (4, 2)
    assert not told[slot].any()
    assert told[others].all()
    while stage.table.numbers[slot, GAMES] < 1:  # admitted, and played
        stage.turn()
    assert (np.abs(told[slot]) < 0.5 * np.abs(told[others]).max(0)).all()


def test_where_all_of_a_team_play_in_every_match_none_earns_more_for_it():
    """So that evolution by it alone is refused there: it would never replace any."""
    stage = Stage(FOUR, "fixed", [0.0, 2.0, 4.0, 6.0], fitness="team_return", confidence=0.0)
    for _ in range(100):
        stage.turn()
    assert stage.born() == []
    config = Config.model_validate({"population": {"evolution": {"every": 9}}})
    for teams, expected in (
        ((), True),
        (("red",) * 4, True),
        (("red", "red", "blue", "blue"), False),
        (("red", "", "", ""), False),
    ):
        roster = Roster(FOUR, FOUR, (), {n: frozenset([i]) for i, n in enumerate(FOUR)}, teams)
        kinds = dict.fromkeys(FOUR, 0)
        assert always_one_team(config.population, kinds, roster) == expected
        alone = {name: name for name in FOUR}  # none may take over from another at all
        assert not always_one_team(config.population, alone, roster)
    dealt = config.population.model_copy(update={"matchmaker": "random"})
    assert not always_one_team(dealt, dict.fromkeys(FOUR, 0), Roster(FOUR, FOUR))


@pytest.mark.slow_cases("tournament", "truncation")
@pytest.mark.parametrize("select", ["truncation", "tournament", "t_test"])
def test_none_is_replaced_on_noise(select):
    """With 95% confidence a look at equals replaces one in at most one of twenty."""
    looks = replaced = 0
    for seed in range(60):
        stage = Stage(FOUR, "fixed", [1.0] * 4, seed, 64, select=select)
        for _ in range(30):
            stage.turn()
        looks += stage.evolution.state()["last"] // 64
        replaced += len(stage.born())
    assert looks > 200
    assert replaced <= 0.05 * looks + 5.0 * np.sqrt(0.05 * looks)


class ZeroSum(Stage):
    """What one of two wins the other loses."""

    def noise(self):
        drawn = self.random.normal(size=(self.copies, 1))
        return np.hstack((drawn, -drawn))


class Cooperative(Stage):
    """All seats of a match, on several of which a policy sits, earn the same."""

    def __init__(self, names, *rest, **config):
        super().__init__(names, "self-play", *rest, **config)

    def noise(self):
        return np.repeat(self.random.normal(size=(self.copies, 1)), self.seats, 1)


@pytest.mark.slow_cases("names0-return", "names1-return", "names1-win_rate")
@pytest.mark.parametrize("fitness", ["return", "win_rate"])
@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")])
def test_none_is_replaced_on_luck_that_the_other_lost(names, fitness):
    """Red before: returns counted as independent, though every loss was the other's gain."""
    looks = replaced = 0
    for seed in range(40):
        config = {"fitness": fitness, "share": 0.5}
        stage = ZeroSum(names, "random", [1.0] * len(names), seed, 64, **config)
        for _ in range(30):
            stage.turn()
        looks += stage.evolution.state()["last"] // 64
        replaced += len(stage.born())
    assert looks > 400
    assert 0 < replaced <= 0.05 * looks


@pytest.mark.slow_cases("4")
@pytest.mark.parametrize("seats", [2, 4])
def test_none_is_replaced_on_luck_that_it_had_on_all_its_seats(seats, monkeypatch):
    """Red before: the same luck counted once for each seat of the match that a policy had."""
    monkeypatch.setitem(MATCHMAKERS, "self-play", lambda names: SelfPlay(seats))
    looks = replaced = 0
    for seed in range(40):
        stage = Cooperative(("a", "b"), [1.0, 1.0], seed, 64, seats=seats, share=0.5)
        for _ in range(30):
            stage.turn()
        looks += stage.evolution.state()["last"] // 64
        replaced += len(stage.born())
    assert looks > 300
    assert replaced <= 0.05 * looks


def test_equal_returns_are_equal_however_their_sums_are_rounded():
    """Red before: returns without variance had no error, and the last bit of a mean decided."""
    worths = {}
    for name, games, squares in (("a", 100, 0.01), ("b", 130, 0.01)):
        member = Member(PolicyRef(name))
        member.numbers[[GAMES, REWARD, SQUARES]] = games, 0.1 * games, squares * games
        worths[name] = estimate_fitness(member, unjudged(member), ("return",))
    worths["b"] = worths["b"]._replace(
        objectives=(worths["b"].objectives[0]._replace(value=0.1 + 1e-15),)
    )
    config = EvolutionConfig(every=1, share=0.5)
    assert selection(config)(worths, np.random.default_rng(0)) == []


@pytest.mark.slow_cases("random")
@pytest.mark.parametrize("matchmaker", MATCHMAKERS)
def test_looks_more_frequent_than_games_keep_policies_comparable(matchmaker):
    """Red before: who had played enough was judged alone, compared with nobody, and anew."""
    stage = Stage(FOUR, matchmaker, [0.0, 2.0, 4.0, 6.0], copies=1, every=1)
    for _ in range(1200):
        stage.turn(1.0)
    born = stage.born()
    assert len(born) >= 3
    assert born[0] in [("a", "d"), ("a", "c"), ("b", "d")]
    assert len(born) <= 1200 * 4 / 20  # each has played that many games at least


def test_a_confidence_of_none_replaces_by_means_alone():
    stage = Stage(FOUR, "fixed", [1.0] * 4, confidence=0.0)
    for _ in range(60):
        stage.turn()
    assert len(stage.born()) >= 3


def test_policies_take_over_from_their_own_kind_alone():
    kinds = {"a": 0, "b": 1, "c": 0, "d": 1}
    stage = Stage(FOUR, "fixed", [0.0, 2.0, 4.0, 6.0], kinds=kinds, confidence=0.5)
    while len(stage.born()) < 3:
        stage.turn()
    assert set(stage.born()) == {("a", "c"), ("b", "d")}


def test_weights_are_taken_over_with_noise():
    stage = Stage(FOUR, "random", [0.0, 2.0, 4.0, 6.0], mutation=0.5)
    while len(stage.born()) < 1:
        stage.turn()
    (policy, _), *_ = stage.born()
    assert stage.mutated[0] == (policy, 0.5, 1)
    assert np.array_equal(stage.table.births.newborn_weights(policy), np.full(SIZE, 1.5))


def test_newborn_of_one_look_have_numbers_of_their_own():
    """Red before: two copies of one parent, born at once, drew the same numbers."""
    strengths = [0.0, 0.0, 4.0, 4.0]
    stage = Stage(FOUR, "random", strengths, share=0.5, confidence=0.0, explore="resample")
    while len(stage.born()) < 6:
        stage.turn()
    assert len(set(stage.rates())) == len(stage.rates())


@pytest.mark.parametrize("fitness", [["return", "win_rate"], ["rating", "return", "win_rate"]])
def test_policies_are_judged_by_several_objectives(fitness):
    strengths = [0.0, 2.0, 4.0, 6.0]
    stage = Stage(FOUR, "random", strengths, select="non_dominated", fitness=fitness)
    while not stage.born():
        stage.turn()
    assert stage.born()[0] == ("a", "d")


def test_none_is_replaced_that_is_better_in_one_of_two_objectives():
    """`b` earns more, and is beaten more often: neither takes over from the other."""
    worths = {
        "a": FitnessEstimates((FitnessEstimate(1.0, 0.01), FitnessEstimate(0.9, 0.01)), 50),
        "b": FitnessEstimates((FitnessEstimate(2.0, 0.01), FitnessEstimate(0.4, 0.01)), 50),
    }
    for objectives, expected in (
        (("return",), [("a", "b")]),
        (("win_rate",), [("b", "a")]),
        (("return", "win_rate"), []),
    ):
        config = EvolutionConfig(
            every=1, select="non_dominated", share=0.5, fitness=objectives, confidence=0.9
        )
        kept = [("return", "win_rate").index(each) for each in objectives]
        seen = {
            name: FitnessEstimates(tuple(worth.objectives[i] for i in kept), worth.games)
            for name, worth in worths.items()
        }
        assert selection(config)(seen, np.random.default_rng(0)) == expected


def test_without_numbers_all_is_taken_over_as_it_is():
    stage = Stage(FOUR, "random", [0.0, 2.0, 4.0, 6.0], numbers={})
    while len(stage.born()) < 1:
        stage.turn()
    _, parent = stage.born()[0]
    assert stage.rates()[0] == 1e-3 * (FOUR.index(parent) + 1)
    assert stage.mutated == []


@pytest.mark.parametrize("every", [64, 6400])
def test_a_bandit_counts_time_in_looks(every):
    """Red before: in matches, so that all it had tried was forgotten from look to look."""
    stage = Stage(FOUR, "fixed", [1.0] * 4, copies=every, every=every, explore="pb2")
    for _ in range(12):
        stage.turn(1.0)
    trials = stage.evolution.state()["explorers"][0]["trials"]
    assert sorted({time for _, time, _ in trials}) == list(np.arange(2.0, 13.0))


def test_a_bandit_learns_what_came_of_numbers_that_did_not_last():
    """Red before: a newborn that was replaced when it was judged first had never been tried."""
    stage = Stage(FOUR, "random", [0.0, 4.0, 4.0, 4.0], explore="pb2")
    while len(stage.born()) < 3:
        stage.turn()
    assert {policy for policy, _ in stage.born()} == {"a"}
    tried = {
        values[RATE]: gain for values, _, gain in stage.evolution.state()["explorers"][0]["trials"]
    }
    for rate in stage.rates()[:2]:
        assert tried[rate] == pytest.approx(-4.0, abs=1.0)  # it began as a copy of a better one


def test_a_bandit_does_not_mix_what_came_of_numbers_with_unlike_networks():
    """Red before: all kinds had one bandit, and a number that suits one need not suit another."""
    kinds = {"a": "small", "b": "small", "c": "large", "d": "large"}
    strengths = [0.0, 2.0, 4.0, 6.0]
    stage = Stage(FOUR, "fixed", strengths, kinds=kinds, explore="pb2", confidence=0.5)
    for _ in range(60):
        stage.turn(1.0)
    own = {"small": set(), "large": set()}
    for policy, rate in stage.begun_with():
        own[kinds[policy]].add(rate)
    assert len(own["small"] | own["large"]) > 6
    for kind, saved in zip(own, stage.evolution.state()["explorers"], strict=True):
        tried = {values[RATE] for values, _, _ in saved["trials"]}
        assert tried
        assert tried <= own[kind]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    some.sampled_from(["fixed", "random"]),
    some.integers(3, 5),
    some.integers(2, 40),
    some.integers(0, 2**32 - 1),
    some.lists(
        some.tuples(
            some.sampled_from([0.02, 0.2, 1.0]),  # how many matches end in a turn
            some.booleans(),  # whether learners do what was ordered
            some.sampled_from(["", "", "", "", "dies", "dies and forgets"]),
        ),
        min_size=10,
        max_size=40,
    ),
)
def test_no_slot_stays_empty_whoever_dies(matchmaker, count, copies, seed, turns):
    names = FOUR[:count] if count <= 4 else (*FOUR, "e")
    strengths = np.arange(len(names), dtype=np.float64)
    how = {"every": 10, "games": 2, "confidence": 0.0, "share": 0.5}
    stage = Stage(names, matchmaker, strengths, seed, copies, **how)
    for share, learns, event in turns:
        if event:
            stage.begin(stage.evolution.state() if event == "dies" else None)
        stage.turn(share, learns)
        stage.league.lifecycle.note_slots()
        population = stage.league.population
        away = {*population.empty, *population.expected, *population.leaving}
        live = {member.ref.policy for member in population.learning}
        assert not away & live
        assert away | live == set(names)
        assert live
        # A copy that stands in is there only while the policy is away.
        assert not {member.ref.policy for member in population.frozen} & live
    empty = dict.fromkeys(names, 0)
    for _ in range(30):
        stage.turn(1.0, learns=True)
        stage.league.lifecycle.note_slots()
        gone = stage.league.population.empty
        empty = {name: empty[name] + 1 if name in gone else 0 for name in names}
        assert max(empty.values()) <= 1, f"{gone} stay empty"
