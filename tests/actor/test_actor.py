"""The actor: order within a turn, what it writes, what it counts, and that it waits for nobody."""

import numpy as np
import pytest

from refusals import refuses
from remuda.actor.actor import Actor
from remuda.actor.fixed_seats import FixedSeats
from remuda.actor.frames import FrameStack
from remuda.actor.make_seats import make_seats
from remuda.config import load_config
from remuda.errors import CheckpointError
from remuda.experience.replay import TransitionReplay
from remuda.policies.selectors import explore_allowed
from remuda.policies.stack import layout_checksum, layout_size
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import PublishedWeights, Publisher, SnapshotReader
from remuda.system.memory.waiting import Wakeup
from remuda.system.rng import make_rng
from remuda.system.scoreboard import Play, Policy, Scoreboard
from remuda.types import TurnResult
from support import Tape, make_experience, sample


def test_iqns_of_other_numbers_of_quantiles_do_not_act_as_one_stack():
    def stacks(own):
        tree = {"policy": {"network": {"hidden": [8]}}, "policies": {"agent_1": {"iqn": own}}}
        env = Tape(num_agents=2)
        specs = policy_specs(load_config(tree), env.agents)
        board = Scoreboard(tuple(spec.name for spec in specs))
        return len({id(seat.stack) for seat in make_seats(env, specs, board, seed=0, purpose="t")})

    assert stacks({}) == stacks({"target_every": 7}) == 1
    assert stacks({"quantiles": 5}) == 2  # though their parameters have the same shapes


def make(env, epsilon=1.0, policy=None, **experience):
    tree = {
        "policy": policy
        or {
            "n_frames": 2,
            "network": {"hidden": (8,)},
            "iqn": {"quantiles": 3},
            "experience": {"segment_length": 10, "learning_starts": 64} | experience,
        }
    }
    specs = policy_specs(load_config(tree), env.agents)
    board = Scoreboard(tuple(spec.name for spec in specs))
    published = PublishedWeights(
        {
            spec.name: (
                layout_size(spec.network().shapes),
                layout_checksum(spec.network().shapes),
                spec.config.publish,
            )
            for spec in specs
        }
    )
    publishers = {}
    for spec in specs:
        shapes = spec.network().shapes
        publishers[spec.name] = Publisher(published, spec.name, layout_checksum(shapes))
        publishers[spec.name].publish(np.zeros(layout_size(shapes), np.float32), 0, epsilon)
    seats = make_seats(env, specs, board, seed=0, purpose="actor")
    experience = {}
    for spec, seat in zip(specs, seats, strict=True):
        found = make_experience(spec, (env.num_envs,), Wakeup(), (Wakeup(),))
        experience[spec.name] = found
        seat.experience = found
    actor = Actor(
        env, FixedSeats(env, seats), board.play(), make_rng(0, "env"), SnapshotReader(published)
    )
    return actor, experience, board, publishers


def transitions(experience, draws=40):
    replay = TransitionReplay([experience], 1, 0.9, np.random.default_rng(0))
    found = set()
    for _ in range(draws):
        batch = sample(replay, 64)
        for b in range(64):
            found.add(
                (
                    tuple(batch.s_tm1[b]),
                    int(batch.a_tm1[b]),
                    float(batch.r_t[b]),
                    float(batch.discount_t[b]),
                    tuple(batch.s_t[b]),
                )
            )
    return found


@pytest.mark.slow
def test_each_policy_learns_what_its_own_agent_lived_through():
    env = Tape(num_envs=3, num_agents=2, lengths=(3, 5))
    actor, experience, _, _ = make(env)
    for _ in range(60):
        assert actor.work()
    for agent in range(2):
        found = transitions(experience[f"agent_{agent}"])
        assert len(found) > 150
        for before, action, reward, discount, after in found:
            copy, seat, episode, turn, acts = before[5:]
            assert (seat, reward, acts) == (agent, action, agent)
            old_copy, _, old_episode, old_turn, _ = before[:5]
            if turn > 0:
                assert (old_copy, old_episode, old_turn) == (copy, episode, turn - 1)
            else:
                assert not any(before[:5])  # nothing of the episode before
            assert after[:5] == before[5:]
            assert after[5:9] == (copy, agent, episode, turn + 1)
            last = turn + 1 == (3, 5, 3)[int(copy)]
            # Even episodes terminate, odd ones are truncated; only the first end the future.
            assert discount == pytest.approx(0.0 if last and episode % 2 == 0 else 0.9)
            # What followed is seen at the next decision, when the agents before have acted.
            assert after[9] == (0 if last else agent)


def test_agents_of_one_group_observe_before_any_of_them_acts():
    env = Tape(num_envs=1, num_agents=3, together=True)
    actor, experience, _, _ = make(env)
    for _ in range(40):
        actor.work()
    for agent in range(3):
        assert {before[9] for before, *_ in transitions(experience[f"agent_{agent}"])} == {0}


def test_counts_and_returns():
    env = Tape(num_envs=2, num_agents=2, lengths=(3, 5))
    actor, _, board, _ = make(env)
    ended = []
    actor.on_episode = lambda copy, returns, episode_metrics: ended.append((copy, returns.tolist()))
    for _ in range(15):
        actor.work()
    assert (board.play()[Play.TURNS], board.play()[Play.AGENT_STEPS]) == (30, 60)
    assert [copy for copy, _ in ended] == [0, 1, 0, 0, 1, 0, 0, 1]
    for agent in range(2):
        row = board.policy(f"agent_{agent}")
        assert row[Policy.EPISODES] == 8
        earned = [returns[agent] for _, returns in ended]
        assert row[Policy.RETURN_SUM] == sum(earned)
        assert row[Policy.TURNS_SUM] == sum((3, 5)[copy] for copy, _ in ended)
        assert (row[Policy.LOW], row[Policy.HIGH]) == (min(earned), max(earned))


def num_weights(actor, agent):
    """How many weights the policy of an agent has."""
    return layout_size(actor.seats.seats[agent].stack.network.shapes)


def test_news_is_acted_on_in_the_next_turn():
    env = Tape(num_envs=1, num_agents=2, lengths=(100,))
    actor, experience, board, publishers = make(env)
    for _ in range(5):
        actor.work()
    weights = np.zeros(num_weights(actor, 1), np.float32)
    publishers["agent_1"].publish(weights, 17, 0.25)
    for _ in range(5):
        actor.work()
    row = board.policy("agent_1")
    assert (row[Policy.VERSION], row[Policy.EPSILON]) == (2, 0.25)
    versions = experience["agent_1"].rings[0].shared["versions"][0, :10]
    assert versions.tolist() == [1] * 5 + [2] * 5
    assert (experience["agent_0"].rings[0].shared["versions"][0, :10] == 1).all()


def test_a_dead_learner_never_makes_the_actor_wait():
    env = Tape(num_envs=4, num_agents=2)
    actor, experience, board, _ = make(env, capacity=128)
    for _ in range(2_000):
        assert actor.work()
    assert board.play()[Play.WAITS] == 0
    assert experience["agent_0"].overwritten > 0


def test_wait_stops_the_actor_until_its_limit():
    env = Tape(num_envs=4, num_agents=2)
    actor, experience, board, _ = make(env, capacity=128, on_full="wait", wait_limit=0.2)
    while actor.work():
        pass
    assert experience["agent_0"].written > 128
    actor.wait(60.0, lambda: False)  # ends at the ring's own limit, and is counted
    assert board.play()[Play.WAITS] == 1
    assert board.play()[Play.FORCED] == 1
    assert board.play()[Play.WAIT_SECONDS] >= 0.19
    assert actor.work()
    experience["agent_0"].consume(10**6)
    experience["agent_1"].consume(10**6)
    assert all(actor.work() for _ in range(100))


def test_frames_are_stacked_and_forgotten():
    inputs = np.zeros((2, 3), np.float32)
    frames = FrameStack(inputs, 1)
    for value in (1, 2, 3, 4):
        frames.push(np.array([[value], [10 * value]], np.uint8), np.ones(2, bool))
    assert inputs.tolist() == [[2, 3, 4], [20, 30, 40]]
    frames.start(np.array([True, False]))
    frames.push(np.array([[5], [50]], np.uint8), np.ones(2, bool))
    assert inputs.tolist() == [[0, 0, 5], [30, 40, 50]]
    frames.push(np.array([[6], [60]], np.uint8), np.array([False, True]))
    assert inputs.tolist() == [[0, 0, 5], [40, 50, 60]]


class Relay(Tape):
    """One agent after another, a turn each; nobody's episode ends before the copy's own."""

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        self.active[mask] = [True, False]

    def end_turn(self):
        result = super().end_turn()
        over = result.terminated | result.truncated
        self.active[...] = ~over & ((self._turn[:, None] + np.arange(2)) % 2 == 0)
        return result


def test_who_is_not_active_makes_no_step_and_keeps_what_it_kept():
    policy = {"algorithm": "ppo", "network": {"hidden": (8,), "recurrent": 5}}
    env = Relay(num_envs=2, num_agents=2, lengths=(6,))
    actor, experience, board, publishers = make(env, policy=policy)
    for agent, (name, publisher) in enumerate(publishers.items()):
        weights = np.random.default_rng(len(name)).normal(size=num_weights(actor, agent))
        publisher.publish(weights.astype(np.float32), 1, 1.0)
    recurrent_states = [seat.stack.recurrent_states[seat.index] for seat in actor.seats.seats]
    for turn in range(5):
        before = [kept.copy() for kept in recurrent_states]
        actor.turn()
        assert (recurrent_states[turn % 2] != before[turn % 2]).any()
        assert (recurrent_states[1 - turn % 2] == before[1 - turn % 2]).all()
    actor.turn()
    assert board.play()[Play.AGENT_STEPS] == 12
    assert [experience[f"agent_{i}"].written for i in range(2)] == [6, 6]


def test_exploration_is_uniform_and_as_frequent_as_said():
    uniforms = np.random.default_rng(0).random(100_000)
    actions = np.full(100_000, 9)
    masks = np.zeros((len(actions), 0), np.bool_)
    explore_allowed(actions[:, None], masks, np.array([4]), uniforms, 0.3)
    share = (actions != 9).mean()
    assert abs(share - 0.3) < 0.01
    counts = np.bincount(actions[actions != 9], minlength=4)
    assert counts.size == 4
    assert abs(counts / counts.sum() - 0.25).max() < 0.01


def test_a_memory_begins_anew_with_an_episode_and_is_written_with_its_segments():
    policy = {"algorithm": "ppo", "network": {"hidden": (8,), "recurrent": 5}}
    env = Tape(num_envs=2, num_agents=1, lengths=(3, 5))
    actor, experience, _, publishers = make(env, policy=policy)
    weights = np.random.default_rng(0).normal(size=num_weights(actor, 0))
    publishers["agent_0"].publish(weights.astype(np.float32), 1, 1.0)
    recurrent_states = actor.seats.seats[0].stack.recurrent_states[0]
    for turn in range(1, 4):
        actor.turn()
        assert (recurrent_states[1] != 0).any()
        assert (recurrent_states[0] != 0).any() == (turn < 3)
    actor.turn()
    kept = actor.seats.seats[0].stack.previous_states[0]
    assert (kept[0] == 0).all()
    assert (kept[1] != 0).any()
    begun = experience["agent_0"].rings[0].shared["numbers"][:3].argsort()
    assert (experience["agent_0"].rings[0].shared["recurrent_states"][begun] == 0).all()


def test_what_the_game_tells_of_its_episodes_is_counted_when_they_are_over():
    """By hand: copies of 3 and 5 turns tell their length; means come from the sums."""

    class Telling(Tape):
        episode_metrics = ("length", "copy")

        def end_turn(self):
            result = super().end_turn()
            told = {"length": self._turn.astype(float), "copy": np.arange(2.0) + 1}
            return TurnResult(result.rewards, result.terminated, result.truncated, told)

    env = Telling(2, 1)
    specs = policy_specs(load_config({"policy": {"network": {"hidden": (8,)}}}), env.agents)
    board = Scoreboard(("agent_0",), episode_metrics=env.episode_metrics)
    seats = make_seats(env, specs, board, seed=0, purpose="actor")
    actor = Actor(
        env,
        FixedSeats(env, seats),
        board.play(),
        make_rng(0, "env"),
        episode_totals=board.episode_totals(),
    )
    heard = []
    actor.on_episode = lambda copy, returns, episode_metrics: heard.append(
        (copy, *episode_metrics.tolist())
    )
    for _ in range(15):
        actor.turn()
    sums, told = [5 * 3 + 3 * 5, 5 * 1 + 3 * 2], [5 + 3] * 2
    assert board.all_episode_totals().tolist() == [5 + 3, *sums, *told]
    assert sorted(heard) == [(0, 3, 1)] * 5 + [(1, 5, 2)] * 3
    other = Scoreboard(("agent_0",), episode_metrics=env.episode_metrics)
    other.restore(board.state())
    assert other.all_episode_totals().tolist() == board.all_episode_totals().tolist()
    saved = board.state()
    for episode_metrics in (("x",), ("x", "y", "z", "u")):
        with pytest.raises(CheckpointError):
            Scoreboard(("agent_0",), episode_metrics=episode_metrics).restore(board.state())
    del saved["episode_totals"]
    with refuses(CheckpointError):
        other.restore(saved)
