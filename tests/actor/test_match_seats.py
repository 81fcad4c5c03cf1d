"""Seats dealt by match: who acts, with which weights, and who learns from it."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from assembled import spec_of
from remuda.actor.actor import Actor
from remuda.actor.make_seats import make_policy_groups
from remuda.actor.match_seats import MatchSeats
from remuda.assembly.experience_layout import experience_of_all
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.experience.replay import TransitionReplay
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.policies.stack import ParameterStack, layout_checksum, layout_size
from remuda.population.dealing.lead import League
from remuda.population.ledger.records import PolicyRef
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.population.members.table import Table
from remuda.population.roster import Roster, copies_of
from remuda.population.setup import make_director, make_matchmaker
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import PublishedWeights, Publisher, Snapshot, SnapshotReader
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.memory.waiting import Wakeup
from remuda.system.rng import make_rng, torch_rng
from remuda.system.scoreboard import Play, Policy, Scoreboard
from support import Tape, sample

DQN = {
    "algorithm": "dqn",
    "n_frames": 2,
    "network": {"hidden": (8,)},
    "experience": {"segment_length": 4, "learning_starts": 64, "capacity": 4000},
    "exploration": {"start": 0.5, "end": 0.5},
}


class World:
    """An actor over a game, with all that it writes into, in one process."""

    def __init__(self, env, tree, matchmaker=None):
        self.env, self.config = env, load_config(tree)
        self.specs = policy_specs(self.config, env.agents)
        names = [spec.name for spec in self.specs]
        learners = {name: Wakeup() for name in names}
        self.experience = experience_of_all(
            spec_of(self.config, env.agents), self.specs, (env.num_envs,), learners, (Wakeup(),)
        )
        shapes = {spec.name: spec.network().shapes for spec in self.specs}
        sizes = {name: layout_size(each) for name, each in shapes.items()}
        self.published = PublishedWeights(
            {
                spec.name: (
                    sizes[spec.name],
                    layout_checksum(shapes[spec.name]),
                    spec.config.publish,
                )
                for spec in self.specs
            }
        )
        self.publishers = {
            name: Publisher(self.published, name, layout_checksum(shapes[name])) for name in names
        }
        for spec in self.specs:
            self.publish(spec.name)
        self.board = Scoreboard(tuple(names))
        self.table = Table(sizes, len(env.agents), copies_of(self.config.population))
        self.actor = self.successor(env, matchmaker)

    def successor(self, env, matchmaker=None):
        roster = Roster.of(self.config, env.agents)
        self.league = League(
            self.table,
            matchmaker or make_matchmaker(self.config.population, roster),
            make_director(self.config.population),
            make_rng(0, "matches"),
            env.num_envs,
            roster,
        )
        policy_groups = make_policy_groups(
            env, self.specs, self.league, self.experience, seed=0, purpose="test"
        )
        self.seats = MatchSeats(env, policy_groups, self.league, self.board.policies_of())
        return Actor(
            env, self.seats, self.board.play(), make_rng(0, "env"), SnapshotReader(self.published)
        )

    def weights(self, policy, version):
        """Drawn anew for every policy and version."""
        spec = next(spec for spec in self.specs if spec.name == policy)
        stack = ParameterStack(spec.network().shapes, 1)
        spec.network().initialise(stack.parameters, torch_rng(0, policy, version))
        return stack.flat[0].numpy().copy()

    def publish(self, policy, epsilon=0.5):
        publisher = self.publishers[policy]
        publisher.publish(self.weights(policy, publisher.version + 1), 10, epsilon)


def lived_through(experience, draws=200):
    """All steps in replay as (copy, seat, episode, turn)."""
    replay = TransitionReplay([experience], 1, 0.9, np.random.default_rng(0))
    found = {}
    for _ in range(draws):
        batch = sample(replay, 64)
        for b in range(64):
            step = tuple(batch.s_tm1[b, 5:9].astype(int))
            found[step] = (
                int(batch.a_tm1[b]),
                float(batch.r_t[b]),
                tuple(batch.s_tm1[b, :5]),
                int(batch.versions[b]),
            )
    return found


@pytest.mark.slow_cases("False-random")
@pytest.mark.parametrize("matchmaker", ["random", "round_robin", "self_play", "fixed"])
@pytest.mark.parametrize("together", [False, True])
def test_what_a_seat_lives_through_goes_to_the_policy_that_acted(matchmaker, together):
    policies = {"self_play": 2, "fixed": 2}.get(matchmaker, 4)
    population = {"matchmaker": matchmaker, "policies": policies, "snapshots": {"every": 2}}
    env = Tape(num_envs=6, num_agents=3, lengths=(3, 5, 7), together=together)
    # Two of a network whose rings are of another kind than the others'.
    own = {"experience": {"segment_length": 3}}
    tree = {"policy": DQN, "env": {"num_envs": 6}, "population": population}
    world = World(
        env, tree | {"policies": {"policy_1": own, "policy_3": own} if policies > 3 else {}}
    )
    truth, acted = defaultdict(dict), defaultdict(int)
    for turn in range(60):
        if turn % 9 == 0:
            world.publish("policy_0")
        seated = world.league.seated.copy()
        before = np.zeros((6, 5), np.float32)
        env.observe(0, before)  # copy, agent, episode, turn, acts
        assert world.actor.work()
        for copy in range(6):
            for seat in range(3):
                ref = world.table.policies[world.table.occupants.identity[seated[copy, seat], 0]]
                frozen = world.table.occupants.identity[seated[copy, seat], 1] >= 0
                step = (copy, seat, int(before[copy, 2]), int(before[copy, 3]))
                acted[ref, bool(frozen)] += 1
                if not frozen:
                    truth[ref][step] = world.publishers[ref].version
    if matchmaker != "fixed":
        assert acted["policy_0", True] > 20  # frozen copies play, and nobody learns from it
    for policy, steps in truth.items():
        found = lived_through(world.experience[policy])
        complete = {
            s
            for s in steps
            if (s[0], s[1], s[2], s[3] + 1) in steps or s[3] + 1 == (3, 5, 7)[s[0] % 3]
        }
        assert set(found) == complete
        for (copy, seat, episode, at), lived in found.items():
            action, reward, frame_before, version = lived
            assert version == steps[copy, seat, episode, at]
            assert action == reward  # the game gives each agent what it did
            assert frame_before == (
                (copy, seat, episode, at - 1, frame_before[4]) if at else (0,) * 5
            )
    for policy in world.table.policies:
        row = world.board.policy(policy)
        alive = world.league.population[PolicyRef(policy)]
        assert row[Policy.RETURN_SUM] == alive.total_reward
        assert 3 * row[Policy.EPISODES] <= row[Policy.TURNS_SUM] <= 7 * row[Policy.EPISODES]
        if row[Policy.EPISODES]:
            assert row[Policy.LOW] <= alive.total_reward / alive.games <= row[Policy.HIGH]
    row = world.board.policy("policy_1")
    assert row[Policy.EPISODES] == world.league.population[PolicyRef("policy_1")].games
    assert world.board.play()[Play.AGENT_STEPS] == 60 * 6 * 3


def test_every_stream_is_played_by_the_weights_of_whoever_has_its_seat():
    """Greedily, each action is the best by the network that sits there, worked out one by one."""
    population = {"matchmaker": "random", "policies": 5, "snapshots": {"every": 1, "keep": 3}}
    env = Tape(num_envs=7, num_agents=2, lengths=(2, 3))
    world = World(env, {"policy": DQN, "env": {"num_envs": 7}, "population": population})
    for name in world.publishers:
        world.publish(name, epsilon=0.0)
    network = world.specs[0].network()
    seen_frozen = 0
    for turn in range(30):
        if turn % 4 == 0:
            world.publish("policy_2", epsilon=0.0)
        acted = {}

        def watch(agent, actions, acted=acted):
            policy_group = world.seats.policy_groups[0]
            acted[agent] = (
                policy_group.inputs[policy_group.arrays.streams_of(agent)].copy(),
                actions.copy(),
            )
            Tape.act(env, agent, actions)

        env.act = watch
        seated = world.league.seated.copy()
        world.actor.work()
        for agent, (inputs, actions) in acted.items():
            for copy in range(7):
                slot = seated[copy, agent]
                policy, version = world.table.occupants.identity[slot, :2]
                name = world.table.policies[policy]
                if version < 0:
                    version = world.board.policy(name)[Policy.VERSION]
                else:
                    seen_frozen += 1
                stack = ParameterStack(network.shapes, 1)
                with torch.inference_mode():
                    stack.flat[0].copy_(torch.from_numpy(world.weights(name, int(version))))
                    weights = network.acting(stack.parameters, None)
                    values = network.outputs(weights, torch.from_numpy(inputs[None, [copy]]))
                assert int(values[0, 0].argmax()) == actions[copy]
    assert seen_frozen > 20


class Script(Matchmaker):
    """Deals what it is told."""

    def __init__(self, seats, seatings):
        super().__init__(seats)
        self.seatings = seatings

    def seat(self, population, ledger, random):
        return tuple(PolicyRef(name) for name in self.seatings[self.proposed % len(self.seatings)])


@pytest.mark.slow
def test_policies_of_different_kinds_and_networks_share_a_game():
    """Each on the seats that it may take, and an algorithm, network and ring of its own."""
    tree = {
        "policy": DQN,
        "env": {"num_envs": 3},
        "population": {"matchmaker": "random", "policies": ["a", "b", "c", "d"]},
        "policies": {
            "b": {"network": {"hidden": (12, 4)}, "n_frames": 1},
            "c": {"algorithm": "ppo", "ppo": {"rollout_length": 4}},
            "d": {"algorithm": "ppo", "ppo": {"rollout_length": 4}, "network": {"recurrent": 6}},
        },
    }
    env = Tape(num_envs=3, num_agents=2, lengths=(4,))
    seatings = [("a", "b"), ("c", "d"), ("d", "d"), ("b", "c")]
    world = World(env, tree, Script(2, seatings))
    assert len(world.seats.policy_groups) == 4
    for _ in range(40):
        assert world.actor.work() or world.seats.backpressure
        for experience in world.experience.values():
            experience.release()
    written = {name: found.written for name, found in world.experience.items()}
    games = {m.ref.policy: m.games for m in world.league.population.members}
    assert sum(games.values()) == 2 * 30
    for name, count in written.items():  # whole episodes of four steps
        assert count >= 4 * games[name] > 0


@pytest.mark.slow
def test_a_memory_belongs_to_its_stream():
    """A recurrent policy remembers what the same stream saw, wherever the seats are dealt."""
    policy = {"algorithm": "ppo", "network": {"recurrent": 4, "hidden": (8,)}}
    policy |= {"ppo": {"rollout_length": 8}, "experience": {"segment_length": 8}}
    population = {"matchmaker": "random", "policies": 3}
    env = Tape(num_envs=4, num_agents=2, lengths=(6, 3))
    world = World(env, {"policy": policy, "env": {"num_envs": 4}, "population": population})
    for _ in range(24):
        for experience in world.experience.values():
            experience.release()
        assert world.actor.work()
    found, continued, memories = 0, {}, {}
    for spec in world.specs:
        experience = world.experience[spec.name]
        ring, network = experience.rings[0], spec.network()
        stack = ParameterStack(network.shapes, 1)
        stack.flat.data[0].copy_(torch.from_numpy(world.weights(spec.name, 1)))
        with torch.inference_mode():
            weights = network.acting(stack.parameters, None)
            for slot in np.flatnonzero(ring.shared["committed"] >= 3):
                memory = torch.from_numpy(ring.shared["recurrent_states"][slot].copy()).view(
                    1, 1, -1
                )
                copy, agent, episode, turn, _ = ring.shared["observations"][slot, 0].astype(int)
                assert bool(memory.any()) == (turn > 0)
                continued[copy, agent, episode, turn - 1] = memory.numpy()
                for t in range(ring.shared["committed"][slot]):
                    if t and ring.shared["discounts"][slot, t - 1] != 1.0:
                        memory = torch.zeros_like(memory)  # an episode ended before this step
                    seen = torch.from_numpy(ring.shared["observations"][slot, t].copy()).view(
                        1, 1, -1
                    )
                    outputs, memory = network.step(weights, seen, memory)
                    action = torch.from_numpy(ring.shared["actions"][slot, t].copy()).view(1, 1, -1)
                    chance, _ = network.actions.log_probs_and_entropy(outputs, action, None)
                    assert float(chance) == pytest.approx(
                        ring.shared["log_probs"][slot, t], abs=1e-5
                    )
                    copy, agent, episode, turn, _ = seen.reshape(5).int().tolist()
                    memories[copy, agent, episode, turn] = memory.numpy()
                    found += 1
    assert found > 60
    both = continued.keys() & memories.keys()
    assert len(both) > 3
    for step in both:
        assert continued[step] == pytest.approx(memories[step], abs=1e-5)


def test_a_policy_on_several_seats_learns_from_all_of_them():
    policy = {"algorithm": "ppo", "ppo": {"rollout_length": 8}, "experience": {"segment_length": 4}}
    population = {"matchmaker": "fixed", "policies": 1}
    world = World(
        Tape(num_envs=2, num_agents=3, lengths=(4,)),
        {"policy": policy, "env": {"num_envs": 2}, "population": population},
    )
    experience = world.experience["policy_0"]
    while experience.untaken < experience.rollout:
        assert world.actor.work()
    rollout = Rollout.empty(experience, 1)
    steps = RolloutQueue(experience).take(rollout, 0, 1)
    assert steps >= experience.rollout == 8 * 2 * 3
    rows = rollout.streams[0, : rollout.num_rows[0]]
    assert set(rows[rows != AFTER]) == set(range(6))
    seen = rollout.observations[0, : rollout.num_rows[0]][rows != AFTER]
    assert {tuple(step) for step in seen[:, :2].astype(int)} == {
        (c, s) for c in (0, 1) for s in range(3)
    }


def test_a_successor_goes_on_exactly_and_one_without_its_state_keeps_the_books():
    population = {"matchmaker": "self_play", "policies": 2, "snapshots": {"every": 2, "keep": 2}}
    tree = {"policy": DQN, "env": {"num_envs": 3}, "population": population}

    def play(world, turns, first=0):
        for turn in range(first, first + turns):
            if turn % 6 == 0:
                world.publish("policy_1")
            world.actor.work()

    def books(world):
        return {**world.table.state(), **world.actor.state("actor")}

    whole = World(Tape(num_envs=3, lengths=(2, 5)), tree)
    play(whole, 80)
    parts = World(Tape(num_envs=3, lengths=(2, 5)), tree)
    play(parts, 37)
    state = unpack(pack(parts.actor.state("actor")))
    parts.actor = parts.successor(Tape(num_envs=3, lengths=(2, 5)))
    parts.actor.restore("actor", state)
    play(parts, 43, 37)
    assert pack(books(whole)) == pack(books(parts))
    # The successor of one that was killed: the same population and books, other matches.
    before = parts.table.state()
    play_on = parts.successor(Tape(num_envs=3, lengths=(2, 5)))
    assert [str(m.ref) for m in parts.league.population.members]
    assert np.array_equal(parts.table.numbers, before["numbers"])
    assert parts.league.matchmaker.proposed >= before["words"][1]
    play_on.work()


def test_who_is_dropped_plays_its_match_to_the_end_and_leaves_nothing_behind():
    population = {"matchmaker": "self_play", "snapshots": {"every": 1, "keep": 1}}
    env = Tape(num_envs=3, lengths=(2, 9, 30))
    world = World(env, {"policy": DQN, "env": {"num_envs": 3}, "population": population})
    league, table, outlived = world.league, world.table, 0
    for _ in range(120):
        world.publish("policy")
        seated = league.seated.copy()
        who = table.occupants.identity[seated].copy()
        weights = {int(p): table.snapshot(int(p)).weights for p in np.unique(seated) if p >= 1}
        assert world.actor.work()
        stayed = league.seated == seated
        for slot, before in weights.items():
            if (stayed & (seated == slot)).any():
                assert np.array_equal(table.snapshot(slot).weights, before)
        outlived += sum(
            str(PolicyRef("policy", int(v)))
            not in map(str, (m.ref for m in league.population.members))
            for v in who[stayed][:, 1]
            if v >= 0
        )
    assert outlived > 10
    assert len(league.population.past_of("policy")) == 1
    newest = league.population.past_of("policy")[0]
    assert league.ledger.meetings(PolicyRef("policy"), newest.ref) <= newest.games <= 8


def test_a_slot_that_was_being_written_when_its_actor_died_is_emptied():
    table = Table({"a": 3, "b": 3}, 2, 2)
    population = table.population()
    member = population.freeze("a", 5, slot=2)
    table.freeze(member, Snapshot(np.ones(3, np.float32), 5, 0, 1.0))
    other = population.freeze("b", 7, slot=4)
    table.freeze(other, Snapshot(np.ones(3, np.float32), 7, 0, 1.0))
    table.occupants.sequence[4] += 1  # as it stands in the middle of `freeze`
    assert 4 not in [m.slot for m in _restored(table).members]
    table.repair()
    assert [str(m.ref) for m in table.population().members] == ["a", "b", "a@5"]
    assert table.snapshot(2).weights.tolist() == [1, 1, 1]


def _restored(table):
    copy = Table({"a": 3, "b": 3}, 2, 2)
    copy.restore(unpack(pack(table.state())))
    return copy.population()


def test_records_reach_their_reader_in_order_and_those_that_came_too_fast_are_lost():
    table = Table({"a": 1, "b": 1}, 2, 0)
    records = table.records.empty(10_000)
    records["number"] = np.arange(10_000)
    table.records.add(records)
    found, end = table.records.since(0)
    assert found["number"].tolist() == list(range(10_000))
    for _ in range(3):
        table.records.add(records)
    found, end = table.records.since(end)
    assert end == 40_000
    assert len(found) >= 4_000
    assert found["number"][-1] == 9_999
    assert (np.diff(found["number"]) % 10_000 == 1).all()


def test_games_of_several_kinds_of_agents_seat_each_policy_where_it_fits():
    env = make_env("kuhn_poker", 4)
    policy = {"algorithm": "ppo", "experience": {"segment_length": 4}}
    population = {"matchmaker": "random", "policies": 3}
    world = World(
        env,
        {"game": "kuhn_poker", "policy": policy, "env": {"num_envs": 4}, "population": population},
    )
    for _ in range(60):
        for experience in world.experience.values():
            experience.release()
        assert world.actor.work()
    for experience in world.experience.values():  # nobody did what the rules forbid
        ring = experience.rings[0].shared
        for slot in np.flatnonzero(ring["committed"]):
            for t in range(ring["committed"][slot]):
                assert ring["masks"][slot, t, ring["actions"][slot, t, 0]]
    earned = [m.total_reward for m in world.league.population.members]
    assert sum(earned) == pytest.approx(0.0)  # what one wins another loses
    assert all(m.games > 10 for m in world.league.population.members)
