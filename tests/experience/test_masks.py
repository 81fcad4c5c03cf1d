"""What is allowed is kept with what is seen next, for learners that ask for the best action."""

import numpy as np
import pytest

from assembled import assemble
from masked_games import allowed_by, combinations
from remuda.config import ExperienceConfig, load_config, overlay
from remuda.envs.registry import make_env
from remuda.experience.experience import Experience
from remuda.experience.replay import TransitionReplay
from remuda.experience.ring import StreamShape, fields_of
from remuda.policies.compatibility import stream_shape
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter
from support import sample

ALL = np.ones(1, bool)
NONE = np.zeros(1, bool)


def bits(number, size):
    """A number as so many flags."""
    return [bool(number >> i & 1) for i in range(size)]


def play(writer, episodes, ends="truncated", last=5):
    """Episodes of the given lengths; step i sees i, does i, and is allowed what i's bits say.

    What is allowed after an episode's last step is `last`.
    """
    size = writer.ring.shape.mask_size
    i = 1
    for length in episodes:
        for t in range(length):
            seen = np.full((1, 1), i, np.float32)
            writer.decide(seen, np.array([[i]]), 0, ALL, masks=np.array([bits(i, size)]))
            over = ALL if t == length - 1 else NONE
            flags = (over, NONE) if ends == "terminated" else (NONE, over)
            writer.outcome(
                np.ones(1, np.float32), *flags, seen + 0.5, ALL, np.array([bits(last, size)])
            )
            i += 1


def make(choices=(3,), length=4, keeps=True, branching=False):
    shape = StreamShape(
        (1,),
        np.float32,
        1,
        action_size=len(choices),
        mask_size=sum(choices),
        keeps_last_mask=keeps,
        choices=choices,
        branching=branching,
    )
    config = ExperienceConfig(capacity=40, segment_length=length, learning_starts=1)
    return Experience(shape, config, (1,), Wakeup(), (Wakeup(),))


def allowed_after(experience, n_steps=1):
    """By action, what is allowed after the last of its steps."""
    batch = sample(TransitionReplay([experience], n_steps, 0.5, np.random.default_rng(0)), 500)
    return dict(zip(batch.a_tm1.tolist(), batch.allowed_t.tolist(), strict=True))


def test_the_mask_of_the_next_step_in_a_segment_and_over_its_end():
    """By hand: 6 steps in segments of 4, the last of them not yet followed by anything."""
    experience = make()
    writer = ExperienceWriter(experience)
    play(writer, [6])
    assert allowed_after(experience) == {i: bits(i + 1, 3) for i in range(1, 6)} | {6: bits(5, 3)}
    # Three steps, or as many as the segment has: from step 2 on it is the mask that step 5 bears.
    found = allowed_after(experience, 3)
    assert found[1] == bits(4, 3)
    assert found[2] == found[3] == found[4] == bits(5, 3)


def test_a_segment_that_goes_on_bears_the_newest_mask():
    experience = make()
    writer = ExperienceWriter(experience)
    for i in (1, 2, 6):
        writer.decide(np.zeros((1, 1), np.float32), np.array([[i]]), 0, ALL, masks=mask_of(i))
        writer.outcome(np.zeros(1, np.float32), NONE, NONE, np.zeros((1, 1), np.float32), ALL)
    assert allowed_after(experience) == {1: bits(2, 3), 2: bits(6, 3)}


def mask_of(number, size=3):
    return np.array([bits(number, size)])


def test_after_a_truncation_that_of_the_last_turn_counts_and_nothing_is_everything():
    for last, expected in ((5, bits(5, 3)), (2, bits(2, 3)), (0, [True] * 3)):
        experience = make()
        play(ExperienceWriter(experience), [3], last=last)
        assert allowed_after(experience)[3] == expected
    # Segments that are full when the episode is over have a row for it, too.
    experience = make(length=3)
    play(ExperienceWriter(experience), [3], last=6)
    assert allowed_after(experience)[3] == bits(6, 3)


def test_after_a_termination_nothing_is_asked():
    experience = make()
    play(ExperienceWriter(experience), [3], "terminated", last=1)
    assert allowed_after(experience) == {1: bits(2, 3), 2: bits(3, 3), 3: [True] * 3}
    assert allowed_after(experience, 3)[1] == [True] * 3


def test_several_choices_are_numbered_as_combinations():
    experience = make(choices=(2, 3))
    writer = ExperienceWriter(experience)
    actions = [(0, 0), (0, 2), (1, 0), (1, 2)]
    masks = [[1, 1, 1, 1, 1], [1, 0, 0, 1, 1], [0, 1, 1, 0, 1], [0, 0, 0, 1, 0]]
    for action, mask in zip(actions, masks, strict=True):
        seen = np.zeros((1, 1), np.float32)
        writer.decide(seen, np.array([action]), 0, ALL, masks=np.array([mask], bool))
        writer.outcome(np.zeros(1, np.float32), NONE, NONE, seen, ALL)
    found = allowed_after(experience)
    assert sorted(found) == [0, 2, 3]
    assert found[0] == [False, True, True, False, False, False]
    assert found[2] == [False, False, False, True, False, True]
    # Nothing of the first choice is allowed: all of it is; of the second only the middle one.
    assert found[3] == [False, True, False, False, True, False]


def test_choices_that_are_valued_one_by_one_keep_their_own_masks():
    experience = make(choices=(2, 3), branching=True)
    writer = ExperienceWriter(experience)
    actions = [(0, 0), (0, 2), (1, 0), (1, 2)]
    masks = [[1, 1, 1, 1, 1], [1, 0, 0, 1, 1], [0, 1, 1, 0, 1], [0, 0, 0, 1, 0]]
    for action, mask in zip(actions, masks, strict=True):
        seen = np.zeros((1, 1), np.float32)
        writer.decide(seen, np.array([action]), 0, ALL, masks=np.array([mask], bool))
        writer.outcome(np.zeros(1, np.float32), NONE, NONE, seen, ALL)
    batch = sample(TransitionReplay([experience], 1, 0.5, np.random.default_rng(0)), 200)
    assert not batch.a_tm1.any()
    found = {
        tuple(c): a
        for c, a in zip(batch.choices_tm1.tolist(), batch.allowed_t.tolist(), strict=True)
    }
    assert sorted(found) == [(0, 0), (0, 2), (1, 0)]
    assert found[0, 0] == [True, False, False, True, True]
    assert found[0, 2] == [False, True, True, False, True]
    # Nothing of the first choice is allowed: all of it is.
    assert found[1, 0] == [True, True, False, True, False]


def test_only_learners_from_transitions_keep_the_last_mask():
    env = make_env("connect_four", 1)
    for algorithm, rows in (("ppo", 32), ("dqn", 61), ("iqn", 61)):
        tree = {"policy": {"algorithm": algorithm}}
        if algorithm != "ppo":
            tree["policy"]["experience"] = {"segment_length": 60}
        config = load_config(tree | {"game": "connect_four"})
        spec = policy_specs(config, env.agents)[0]
        fields = fields_of(stream_shape(spec), spec.config.experience.segment_length, 2)
        assert fields["masks"][0] == (2, rows, 7)
    plain = policy_specs(load_config({"game": "tag"}), make_env("tag", 1).agents)[0]
    assert fields_of(stream_shape(plain), 60, 2)["masks"][0] == (2, 60, 0)


DOORS = {
    "game": "masked_games:Doors",
    "schedule": "sequential",
    "env": {"num_envs": 4},
    "policy": {
        "n_frames": 1,
        "n_steps": 1,
        "network": {"hidden": [8]},
        "iqn": {"quantiles": 4},
        "batch_size": 16,
        "experience": {"learning_starts": 32, "capacity": 2000, "segment_length": 4},
        "exploration": {"start": 0.7, "end": 0.7},
        "reward_scale": 1.0,
    },
    "learners": {"processes": 1},
    "run": {"turns": 10_000},
}
POPULATION = {"population": {"policies": 3, "matchmaker": "random"}}


def played(**tree):
    """The experience of all policies after some turns of actor and learners in one process."""
    config = load_config(overlay(DOORS, tree))
    env = make_env(config.game, 1, **config.env.options)
    specs = policy_specs(config, env.agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=env.agents)
    actor, group = (role.build() for role in assembly.roles())
    for _ in range(120):
        actor.work()
        while group.work():
            pass
    return assembly.experience.values()


@pytest.mark.parametrize("seats", ["fixed", "dealt"])
@pytest.mark.parametrize("algorithm", ["dqn", "iqn"])
@pytest.mark.parametrize("choices", [(4,), (2, 3)])
def test_what_is_allowed_goes_with_what_is_seen(choices, algorithm, seats):
    """Doors that are closed let nobody through, and tell by what is seen which they are."""
    tree = {"env": {"options": {"choices": list(choices)}}, "policy": {"algorithm": algorithm}}
    cut = set()
    for experience in played(**tree | (POPULATION if seats == "dealt" else {})):
        batch = sample(TransitionReplay([experience], 1, 0.5, np.random.default_rng(0)), 3000)
        expected = allowed_by(batch.s_t, choices)
        copy, _, episode, turn, _ = batch.s_t.astype(int).T
        over = turn == np.array([3, 5])[copy % 2]
        expected[over & ((copy % 2 == 0) | (batch.discount_t == 0))] = True
        assert ((batch.discount_t == 0) == (over & (episode % 2 == 0))).all()
        assert (batch.allowed_t == combinations(expected, choices)).all()
        before = combinations(allowed_by(batch.s_tm1, choices), choices)
        assert before[np.arange(3000), batch.a_tm1].all()
        assert (batch.allowed_tm1 == before).all()
        assert len(np.unique(batch.a_tm1)) == np.prod(choices)
        cut |= set(copy[over & (episode % 2 == 1)].tolist())
    assert cut == {0, 1, 2, 3}
