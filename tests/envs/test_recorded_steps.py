"""Rewards belong to the action before them, and each trajectory ends with its agent's episode."""

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.recorded import Recorded
from remuda.envs.recorded_steps import StepLog
from remuda.types import AgentSpec
from support import Tape

SPEC = AgentSpec("a", Box(0, 9, (1,), np.float32), Discrete(4))
NO, YES = np.zeros(1, np.bool_), np.ones(1, np.bool_)


def turn(log, acts, rewards, *, so_far=None, terminated=NO, truncated=NO):
    """A turn of one copy; `so_far` are rewards before the agent acts."""
    log.begin_turn()
    if acts is not None:
        log.observe(np.arange(1), None if so_far is None else np.array([so_far], np.float32))
        log.act(np.array([acts]))
    over = log.end_turn(np.array([rewards], np.float32), terminated, truncated)
    if over.any():
        log.close(over, np.full((1, 1), 7, np.float32))


def test_rewards_are_credited_to_the_last_action():
    log = StepLog(SPEC, 1)
    turn(log, None, 100)  # before its first action
    turn(log, 1, 5, so_far=50)  # 50 came before its action
    turn(log, None, 3)  # not its move
    turn(log, 2, 10, so_far=4)  # 4 belong to the action before
    turn(log, None, 1, terminated=YES)
    turn(log, None, 9)  # nothing is going on
    turn(log, 3, 2, truncated=YES)
    assert log.rewards[:3].tolist() == [-45 + 3 + 4, 6 + 1, 2]
    assert log.ends[:3].tolist() == [0, 1, 2]
    assert np.concatenate(log.actions).tolist() == [1, 2, 3]
    assert sorted(log.final_observations) == [1, 2]


def play(env, turns):
    """Each agent's action is its number plus the turn, modulo 4."""
    seen = np.zeros((env.num_envs, 5), np.float32)
    for number in range(turns):
        env.begin_turn()
        for agent in range(env.num_agents):
            env.observe(agent, seen)
            env.act(agent, np.full(env.num_envs, (agent + number) % 4))
        env.end_turn()
        env.observe(0, seen)  # a final observation, which is no step
        env.reset(np.zeros(env.num_envs, np.int64), ~env.active.any(1))


def test_steps_are_sorted_by_episode_and_end_as_it_ended():
    env = Recorded(Tape(2, lengths=(2, 3)), episodes=2, steps=True)
    env.reset(np.zeros(2, np.int64), np.ones(2, np.bool_))
    env.start()
    play(env, 6)
    episodes = env.episodes(3)  # two of the first copy, one of the second
    steps = env.steps(1, episodes)
    copies, agents, numbers, turns, _ = steps.observations.T.astype(int)
    assert copies.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert set(agents.tolist()) == {1}
    assert numbers.tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert turns.tolist() == [0, 1, 0, 1, 0, 1, 2]
    assert steps.actions.tolist() == [1, 2, 3, 0, 1, 2, 3]
    assert steps.rewards.tolist() == steps.actions.tolist()
    assert np.flatnonzero(steps.terminations).tolist() == [1, 6]  # a tape's even episodes
    assert np.flatnonzero(steps.truncations).tolist() == [3]
    assert steps.final_observations[:, 3].tolist() == [2, 2, 3]
    assert steps.episodes.tolist() == [0, 1, 2]
    assert steps.masks is None


def test_an_agent_that_never_acts_has_no_steps():
    env = Recorded(Tape(1, lengths=(1,)), episodes=1, steps=True)
    steps = env.steps(0, env.episodes(1))
    assert len(steps.actions) == len(steps.final_observations) == 0
    assert steps.observations.shape == (0, 5)
