"""PettingZoo's environments as `VectorEnv`, and the games here as PettingZoo's environments."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from refusals import refuses
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.masks import allow_idle, write_mask
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.contract import VectorEnvContract
from remuda.envs.pettingzoo_export import AECGame, ParallelGame, aec_env, parallel_env
from remuda.envs.registry import GAMES, make_env
from remuda.envs.scripted import at_random
from remuda.errors import ConfigError, ContractError
from support import Tape, play_episodes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they import what is deprecated
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test


class TestTicTacToe(VectorEnvContract):
    def make(self, num_envs):
        return make_env("pettingzoo:classic.tictactoe_v3", num_envs)


class TestConnectFour(VectorEnvContract):
    def make(self, num_envs):
        return make_env("pettingzoo:pettingzoo.classic.connect_four_v3", num_envs)


class TestSimpleSpread(VectorEnvContract):
    def make(self, num_envs):
        return make_env("pettingzoo:mpe2.simple_spread_v3", num_envs)


class TestSimpleSpreadOneAtATime(VectorEnvContract):
    def make(self, num_envs):
        return make_env("pettingzoo:mpe2.simple_spread_v3", num_envs, api="aec")


class TestSimpleTagWithContinuousActions(VectorEnvContract):
    def make(self, num_envs):
        return make_env("pettingzoo:mpe2.simple_tag_v3", num_envs, continuous_actions=True)


class TestThereAndBackAtOnce(VectorEnvContract):
    def make(self, num_envs):
        return ParallelCopies(lambda: parallel_env("tag", max_turns=7), num_envs)


class TestThereAndBackInTurn(VectorEnvContract):
    def make(self, num_envs):
        return AECCopies(lambda: aec_env("treasure_hunt", max_turns=9, height=7), num_envs)


class TestThereAndBackWithMasks(VectorEnvContract):
    def make(self, num_envs):
        return AECCopies(lambda: aec_env("kuhn_poker"), num_envs)


@pytest.mark.slow_cases("cleanup", "connect_four", "tag", "treasure_hunt")
@pytest.mark.filterwarnings("ignore::UserWarning")  # it warns of what is unusual, such as all zeros
@pytest.mark.parametrize("game", GAMES)
def test_the_suites_of_pettingzoo_pass(game, capsys):
    small = {"cleanup": {"num_agents": 3, "max_turns": 20}}.get(game, {})
    api_test(aec_env(game, **small), num_cycles=200)
    seed_test(lambda: aec_env(game, **small), 200)
    if not make_env(game, 1, **small).can_observe_together:
        return
    parallel_api_test(parallel_env(game, **small), num_cycles=200)
    parallel_seed_test(lambda: parallel_env(game, **small), 200)
    assert "Passed Parallel API test" in capsys.readouterr().out


def test_a_game_of_one_move_after_another_is_none_of_moves_at_once():
    """Red before: the move of who acts second was dropped."""
    with refuses(ConfigError):
        parallel_env("connect_four")


class Substitutes(Tape):
    """agent_1 is out in turn 2, or ends in it, and comes back in turn 3, at once or mid-turn."""

    def __init__(self, num_envs=1, ends=False, back="turn"):
        super().__init__(num_envs, 3, lengths=(5,))
        self.ends, self.back = ends, back

    def begin_turn(self):
        super().begin_turn()
        if self.back == "turn" and self._turn[0] == (1 if self.ends else 2):
            self.active[:, 1] = True

    def act(self, agent, actions):
        super().act(agent, actions)
        if self.back == "act" and self._turn[0] == 2 and agent == 0:
            self.active[:, 1] = True
            self._rewards[:, 1] += 1

    def end_turn(self):
        out = ~self.active.copy()
        result = super().end_turn()
        if self._turn[0] == 1:
            self.active[:, 1] = False
            result.terminated[:, 1] |= self.ends
        elif self._turn[0] == 2:
            self.active[out] = False
        return result


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("back", ["turn", "act"])
def test_an_agent_that_comes_back_acts_in_turn_too(ends, back):
    """Red before: who had ended before was a KeyError."""
    env = AECGame(Substitutes(ends=ends, back=back))
    for _ in range(2):
        env.reset(seed=0)
        acted, dead = [], []
        for name in env.agent_iter(60):
            _, _, terminated, truncated, _ = env.last()
            over = terminated or truncated
            (dead if over else acted).append((int(env._game._turn[0]), name[-1]))
            env.step(None if over else 1)
        by_turn = ["".join(name for at, name in acted if at == turn) for turn in range(5)]
        away = "012" if ends and back == "turn" else "02"
        assert by_turn == ["012", away, "012", "012", "012"]
        assert len(dead) == 3 + ends
        assert not env.agents


def test_those_who_act_at_once_do_not_see_each_other_act():
    """One after another in the AEC loop, and yet each as the world was before any of them acted."""
    env = AECGame(Tape(1, 3, together=True))
    env.reset(seed=0)
    for turn in range(2):
        for agent in range(3):
            seen, *_ = env.last()
            assert seen.tolist() == [0, agent, 0, turn, 0]  # no act was taken this turn
            env.step(1)


def test_the_seed_suite_tells_a_game_that_is_not_repeatable():
    class Unseeded(ParallelGame):
        def reset(self, seed=None, options=None):
            return super().reset()

    class UnseededInTurn(AECGame):
        def reset(self, seed=None, options=None):
            super().reset()

    with pytest.raises(AssertionError):
        parallel_seed_test(lambda: Unseeded(make_env("cleanup", 1)))
    with pytest.raises(AssertionError):
        seed_test(lambda: UnseededInTurn(make_env("cleanup", 1)))


def test_there_and_back_is_the_same_game():
    """A game plays on alike through both adapters."""
    for game, options in (("treasure_hunt", {"max_turns": 12}), ("cleanup", {"num_agents": 4})):
        direct = make_env(game, 1, **options)
        for copies in (
            AECCopies(lambda g=game, o=options: aec_env(g, **o)),
            ParallelCopies(lambda g=game, o=options: parallel_env(g, **o)),
        ):
            copies.reset(np.array([5]), np.ones(1, bool))
            direct.reset(np.random.default_rng(5).integers(2**62, size=1), np.ones(1, bool))
            together = isinstance(copies, ParallelCopies)
            random = np.random.default_rng(0)
            for _ in range(30):
                actions = random.integers(0, 4, (direct.num_agents, 1))
                copies.begin_turn()
                direct.begin_turn()
                for agent in range(direct.num_agents):
                    shape = (1, *direct.agents[0].observation_space.shape)
                    seen = [np.zeros(shape, np.float32) for _ in range(2)]
                    if agent == 0 or not together:
                        copies.observe(agent, seen[0])
                        direct.observe(agent, seen[1])
                        assert (seen[0] == seen[1]).all()
                    copies.act(agent, actions[agent])
                    direct.act(agent, actions[agent])
                there, here = copies.end_turn(), direct.end_turn()
                assert (there.rewards == here.rewards).all()
                assert (there.truncated == here.truncated).all()
                assert (copies.active.any() == direct.active.any()).all()
                if not direct.active.any():
                    break


class Relay(AECEnv):
    """Three agents add to a sum, always the one that has added least; the last one dies at 4.

    The others are cut off at 8. Every act gives 1 to its agent, and 10 to the one named next.
    """

    metadata = {"name": "relay"}  # noqa: RUF012
    possible_agents = ("a", "b", "c")

    def observation_space(self, agent):
        return spaces.Box(0, 100, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3, start=1)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.total, self.added = 0, dict.fromkeys(self.agents, 0)
        for name in ("rewards", "_cumulative_rewards"):
            setattr(self, name, dict.fromkeys(self.agents, 0))
        for name in ("terminations", "truncations"):
            setattr(self, name, dict.fromkeys(self.agents, False))
        self.infos = {name: {"action_mask": np.array([1, 0, 1])} for name in self.agents}
        self.agent_selection = "b"

    def observe(self, agent):
        return np.array([self.total, self.added.get(agent, 0)], np.float32)

    def step(self, action):
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            self._was_dead_step(action)
            return
        assert action in (1, 3)
        self._cumulative_rewards[name] = 0
        self._clear_rewards()
        self.added[name] += action
        self.total += action
        live = [n for n in self.agents if not (self.terminations[n] or self.truncations[n])]
        following = min(live, key=lambda n: (self.added[n], n))
        self.rewards[name] += 1
        self.rewards[following] += 10
        if self.total >= 4 and "c" in live:
            self.terminations["c"] = True
        if self.total >= 8:
            self.truncations |= dict.fromkeys(set(live) - {"c"}, True)
        self._accumulate_rewards()
        live = [n for n in self.agents if not (self.terminations[n] or self.truncations[n])]
        self.agent_selection = min(live or self.agents, key=lambda n: (self.added[n], n))
        self._deads_step_first()


class TestRelay(VectorEnvContract):
    def make(self, num_envs):
        return AECCopies(Relay, num_envs)


def test_the_selected_agent_acts_and_the_dead_are_stepped_through():
    env = AECCopies(Relay)
    assert env.turn_groups == ((0,), (1,), (2,))
    assert all(spec.masked for spec in env.agents)
    env.reset(np.array([0]), np.ones(1, bool))
    assert env.active.tolist() == [[False, True, False]]
    masks = np.zeros((1, 3), bool)
    env.mask(1, masks)
    assert masks.tolist() == [[True, False, True]]

    def turn(*actions):
        env.begin_turn()
        for agent, action in enumerate(actions):
            env.act(agent, np.array([action]))
        return env.end_turn()

    seen = np.zeros((1, 2), np.float32)
    # b adds 3 and names a, who had its place in this turn before; and c is behind a.
    result = turn(0, 2, 0)
    assert result.rewards.tolist() == [[10, 1, 0]]
    assert env.active.tolist() == [[True, False, False]]
    # a adds 1, which makes 4: c dies, and b is not least.
    result = turn(0, 0, 0)
    assert result.terminated.tolist() == [[False, False, True]]
    assert result.rewards.tolist() == [[1, 0, 10]]
    env.observe(2, seen)
    assert seen.tolist() == [[0, 0]]  # c was never asked, and saw nothing
    assert env.active.tolist() == [[True, False, False]]
    # a adds 3 and names b, who adds 1 in the same turn: 8, and both are cut off.
    result = turn(2, 0, 0)
    assert result.truncated.tolist() == [[True, True, False]]
    assert result.rewards.tolist() == [[11, 11, 0]]
    assert not env.active.any()
    env.observe(0, seen)
    assert seen[0, 0] == 8


class Revival(ParallelEnv):
    """One agent is out in every third turn, and one dies in turn 2 and is born again in turn 4."""

    metadata = {"name": "revival"}  # noqa: RUF012
    possible_agents = ("rests", "dies", "stays")

    def observation_space(self, agent):
        return spaces.Dict({"turn": spaces.Discrete(9), "me": spaces.Box(0, 1, (1,), np.float32)})

    def action_space(self, agent):
        return spaces.MultiDiscrete([2, 3])

    def _see(self, names):
        return {n: {"turn": self.turn, "me": np.ones(1, np.float32)} for n in names}

    def reset(self, seed=None, options=None):
        self.turn = 0
        self.agents = list(self.possible_agents)
        return self._see(self.agents), {n: {} for n in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        assert all(a.shape == (2,) for a in actions.values())
        self.turn += 1
        played = self.agents
        over = self.turn == 6
        dies = self.turn == 2 and "dies" in played
        rewards = {n: float(actions[n].sum()) for n in played}
        if "dies" not in played:
            # In turn 3 it belongs to no agent; in turn 4 the agent joins, and begins with it.
            rewards["dies"] = 7.0
        self.agents = [] if over else ["stays"]
        if not over and self.turn % 3 != 2:
            self.agents.append("rests")
        if not over and self.turn not in (2, 3):
            self.agents.append("dies")
        return (
            self._see({*played, *self.agents}),
            rewards,
            {n: n == "dies" and dies for n in played},
            dict.fromkeys(played, over),
            {n: {} for n in played},
        )


class TestRevival(VectorEnvContract):
    def make(self, num_envs):
        return ParallelCopies(Revival, num_envs)


def test_agents_fall_out_die_and_come_back():
    env = ParallelCopies(Revival)
    rests, dies, stays = range(3)
    env.reset(np.array([0]), np.ones(1, bool))
    active, terminated, truncated = [env.active[0].tolist()], [], []
    for turn in range(6):
        env.begin_turn()
        for agent in range(3):
            env.act(agent, np.array([[1, 2]]))
        result = env.end_turn()
        joined = [0, 7, 0] if turn == 3 else [0, 0, 0]
        assert (result.rewards[0] == np.where(active[-1], 3, joined)).all()
        active.append(env.active[0].tolist())
        terminated.append(result.terminated[0].tolist())
        truncated.append(result.truncated[0].tolist())
    active, terminated, truncated = map(np.array, (active, terminated, truncated))
    assert active[:, rests].tolist() == [1, 1, 0, 1, 1, 0, 0]
    assert active[:, dies].tolist() == [1, 1, 0, 0, 1, 1, 0]
    assert active[:, stays].tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert np.argwhere(terminated).tolist() == [[1, dies]]
    # At the end all are cut off, also the one that was out just then.
    assert truncated[-1].tolist() == [True, True, True]
    assert not truncated[:-1].any()


class Stubborn(Revival):
    """Lists who died until it is born again, or for ever."""

    def __init__(self, for_ever=False):
        self.for_ever = for_ever

    def step(self, actions):
        self.agents = [name for name in self.agents if name in actions]
        told = super().step(actions)
        if self.turn == 2 or (self.for_ever and self.turn < 6):
            self.agents = [*{*self.agents, "dies"}]
        return told


@pytest.mark.parametrize("for_ever", [False, True])
def test_who_has_ended_does_not_act_though_the_environment_still_lists_it(for_ever):
    """Red before: it acted again in the turn after, in an episode of its own, and so on."""
    env = ParallelCopies(lambda: Stubborn(for_ever))
    env.check = False
    for _ in range(2):  # nothing is left of the episode before
        env.reset(np.array([0]), np.ones(1, bool))
        active = []
        for turn in range(6):
            env.begin_turn()
            for agent in range(3):
                env.act(agent, np.array([[1, 2]]))
            result = env.end_turn()
            assert result.terminated[0].tolist() == [False, turn == 1, False]
            active.append(bool(env.active[0, 1]))
        # It was out after the third turn, or never.
        assert active == [True, False, False, not for_ever, not for_ever, False]


def test_who_has_ended_and_is_listed_while_others_play_on_is_refused():
    env = ParallelCopies(Stubborn)
    env.reset(np.array([0]), np.ones(1, bool))
    for turn in range(2):
        env.begin_turn()
        for agent in range(3):
            env.act(agent, np.array([[1, 2]]))
        if turn == 0:
            env.end_turn()
    with refuses(ContractError):
        env.end_turn()


def test_an_episode_may_end_for_all_and_leave_them_listed():
    class Leaves(Revival):
        def step(self, actions):
            self.agents = list(actions)
            seen, rewards, _, _, infos = super().step(actions)
            ends = dict.fromkeys(actions, self.turn == 2)
            self.agents = list(actions)
            return seen, rewards, ends, dict.fromkeys(actions, False), infos

    env = ParallelCopies(Leaves)
    for _ in range(2):
        env.reset(np.array([0]), np.ones(1, bool))
        for turn in range(2):
            assert env.active.all()
            env.begin_turn()
            for agent in range(3):
                env.act(agent, np.array([[1, 2]]))
            assert env.end_turn().terminated.all() == (turn == 1)
        assert not env.active.any()


def test_masks_of_every_form():
    out = np.zeros(5, bool)
    for mask, expected in (
        (np.array([1, 0, 1, 0, 0], np.int8), [1, 0, 1, 0, 0]),
        ((np.array([1, 0]), np.array([0, 0, 1])), [1, 0, 0, 0, 1]),
        (np.zeros(5, np.int8), [0, 0, 0, 0, 0]),
        (None, [1, 1, 1, 1, 1]),
    ):
        write_mask(mask, out, True, [2, 3])
        assert out.tolist() == [bool(allowed) for allowed in expected]


def test_where_another_acts_all_is_allowed_and_who_acts_must_be_allowed_something():
    for check in (True, False):
        masks = np.array([[0, 0], [0, 0], [0, 1]], bool)
        allow_idle(masks, np.array([True, False, False]), check)
        assert masks.tolist() == [[not check] * 2, [True, True], [False, True]]


def test_an_agent_sees_numbers_however_its_space_is_nested():
    env = ParallelCopies(Revival, 2)
    space = env.agents[0].observation_space
    assert space.shape == (10,)
    out = np.zeros((2, 10), np.float32)
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    env.observe(0, out)
    assert space.contains(out[0])
    assert out[0].sum() == 2  # one of nine, and a one


def test_tic_tac_toe_is_fair_at_random_for_who_moves_second_as_far_as_it_is():
    env = make_env("pettingzoo:classic.tictactoe_v3", 20)
    returns = play_episodes(env, [at_random] * 2, 100)
    assert (returns.sum(1) == 0).all()
    # Known of random play: the first wins 58.5 %, the second 28.8 %, the rest are draws.
    assert (returns[:, 0] == 1).mean() == pytest.approx(0.585, abs=0.04)
    assert (returns[:, 1] == 1).mean() == pytest.approx(0.288, abs=0.04)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("nope", {}),
        ("classic.nope_v1", {}),
        ("a b", {}),
        ("classic.tictactoe_v3", {"api": "parallel"}),
        ("classic.tictactoe_v3", {"api": "x"}),
        ("classic.tictactoe_v3", {"size": 4}),
        ("numpy", {}),
    ],
)
def test_what_cannot_be_is_told_in_one_line(name, options):
    with refuses(ConfigError) as error:
        make_env(f"pettingzoo:{name}", 1, **options)
    assert "\n" not in str(error.value)


def test_what_cannot_be_numbers_is_refused():
    class Words(Revival):
        def observation_space(self, agent):
            return spaces.Sequence(spaces.Discrete(3))

    with refuses(ContractError):
        ParallelCopies(Words)


def test_pictures():
    env = make_env("pettingzoo:classic.tictactoe_v3", 1)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    assert env.render().shape[2] == 3
    with pytest.raises(NotImplementedError):
        ParallelCopies(Revival).render()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parallel_env("tag").render() is None
        exported = parallel_env("tag", render_mode="rgb_array")
        exported.reset(seed=1)
        assert exported.render().shape == (176, 176, 3)
