"""The contract of `VectorEnv` as a test suite, for built-in games and users' games.

In a test file:

    from remuda.envs.contract import VectorEnvContract

    class TestMyGame(VectorEnvContract):
        def make(self, num_envs):
            return MyGame(num_envs)

Or, without a test runner, `check_env(lambda num_envs: MyGame(num_envs))`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from remuda.envs.adapters.detect import CHECKERS, kind_of
from remuda.envs.scripted import room_for, turns
from remuda.envs.traces import (
    TURNS,
    EarlyRewards,
    Trace,
    check_masks,
    look,
    look_at_masks,
    play,
    play_turns,
    require,
    require_form,
    seeds_of,
)
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError, UsageError
from remuda.system.checkpoint.state import pack, unpack
from remuda.types import Bools

POISONS = (0x5A, 0xA5)
"""Bytes that fill buffers before an observation, which must overwrite them."""


def every(num_envs: int) -> Bools:
    """Return a mask of all copies."""
    return np.ones(num_envs, np.bool_)


def require_same(first: Trace, second: Trace, guarantee: str) -> None:
    """Require that all copies are equal in two traces."""
    for copy in range(len(first[0].active)):
        require(first.same_as(second, copy, copy), guarantee)


class VectorEnvContract:
    """A test suite to inherit: define `make`. Each test states the guarantee that it checks."""

    def make(self, num_envs: int) -> VectorEnv:
        """Make the environment under test."""
        raise NotImplementedError("define `make(self, num_envs)`, which makes your environment")

    option_values: Mapping[str, Any] = MappingProxyType({})
    """Another value of each option in `changeable_options`, to test guarantee 15."""

    def test_what_it_declares(self) -> None:
        """Agents are declared, each in exactly one turn group."""
        env = self.make(3)
        require(env.num_envs == 3, "num_envs is the number of copies that `make` was called with")
        require(len(env.agents) > 0, "there is at least one agent")
        names = [agent.name for agent in env.agents]
        require(len(set(names)) == len(names), f"agents have different names, not {names}")
        in_groups = sorted(agent for group in env.turn_groups for agent in group)
        once = in_groups == list(range(env.num_agents))
        require(once, f"every agent is in one turn group, not {env.turn_groups}")
        env.close()

    def _require_same(
        self, guarantee: str, copies: int, seed: int, first: dict[str, Any], second: dict[str, Any]
    ) -> None:
        """Require that play is the same in two ways of playing, which are options of `play`."""
        one, other = (play(self.make(copies), seed, **how) for how in (first, second))
        require_same(one, other, guarantee)

    def test_same_seeds_same_game(self) -> None:
        """1. The same seeds and actions give the same observations and results."""
        guarantee = "1. the same seeds and actions give the same observations and results"
        self._require_same(guarantee, 3, 5, {}, {})

    def test_copies_share_nothing(self) -> None:
        """2. Copies share nothing: a single copy plays as it does among others."""
        several = play(self.make(4), seed=7)
        alone = play(self.make(1), seed=7)
        other_acts = play(self.make(4), seed=7, others=1)
        guarantee = "2. copies share nothing: what happens in one never changes another"
        require(several.same_as(alone) and several.same_as(other_acts), guarantee)

    def test_reset_restarts_its_mask_alone(self) -> None:
        """3. `reset` restarts the copies in its mask and leaves the others alone."""
        env, twin = self.make(3), self.make(3)
        for each in (env, twin):
            each.reset(seeds_of(3, 1), every(3))
            play_turns(each, 3)
        env.reset(np.array([-1, 99, -1]), np.array([False, True, False]))
        fresh = self.make(1)
        fresh.reset(np.array([99]), every(1))
        for agent in range(env.num_agents):
            now, before, new = look(env, agent), look(twin, agent), look(fresh, agent)
            require(
                np.array_equal(now[[0, 2]], before[[0, 2]]),
                "3. `reset` leaves the copies outside its mask alone, and ignores their seeds",
            )
            require(
                np.array_equal(now[1], new[0]),
                "3. `reset` restarts the copies in its mask, each from its own seed",
            )

    def test_an_agent_is_active_after_reset(self) -> None:
        """3. After `reset` an agent is active, except in episodes that have already ended."""
        env = self.make(2)
        trace = play(env, seed=3)
        env.reset(seeds_of(2, 4), every(2))
        require_form(env.active, (2, env.num_agents), np.bool_, "`active` is")
        require(
            np.any([turn.began.any(1) for turn in trace], axis=0).all(),
            f"3. an agent is active in some of {TURNS} turns of each copy",
        )

    def test_observe_writes_all_of_out_and_changes_nothing(self) -> None:
        """4. `observe` writes all of `out` and nothing else, and changes nothing in the world."""
        env = self.make(3)
        env.reset(seeds_of(3, 2), every(3))
        env.begin_turn()
        for agent in range(env.num_agents):
            looks = []
            for poison in (*POISONS, *POISONS):
                guarded = np.concatenate([room_for(env, agent)] * 2)[: env.num_envs + 2]
                guarded.view(np.uint8)[...] = poison
                env.observe(agent, guarded[1:-1])
                looks.append(guarded[1:-1].copy())
                edges = guarded[[0, -1]].copy().view(np.uint8)
                require((edges == poison).all(), "4. `observe` writes nothing but `out`")
            require(
                all(np.array_equal(look, looks[0]) for look in looks),
                "4. `observe` writes all of `out`, and changes nothing in the world",
            )

    def test_actions_of_the_inactive_are_ignored(self) -> None:
        """5. Actions of agents that are not active are ignored."""
        guarantee = "5. actions of agents that are not active are ignored"
        self._require_same(guarantee, 2, 11, {"inactive_action": 0}, {"inactive_action": 1})

    def test_results_are_well_formed(self) -> None:
        """6. Termination is not truncation; results have their shapes and dtypes."""
        env = self.make(3)
        shape = (3, env.num_agents)
        for turn in play(env, seed=8):
            rewards, terminated, truncated = (
                getattr(turn.result, name) for name in ("rewards", "terminated", "truncated")
            )
            require_form(rewards, shape, np.float32, "rewards are")
            require_form(terminated, shape, np.bool_, "terminated is")
            require_form(truncated, shape, np.bool_, "truncated is")
            require_form(turn.active, shape, np.bool_, "active is")
            require(np.isfinite(rewards).all(), "rewards are finite")
            require(
                not (terminated & truncated).any(),
                "6. termination is not truncation, and an agent never has both",
            )
            require(
                env.may_return_at_once or not (turn.active & (terminated | truncated)).any(),
                "6. an agent whose episode ended is not active (unless may_return_at_once)",
            )

    def test_the_dead_are_left_alone(self) -> None:
        """9. An agent whose episode has ended gets no reward, and does not end again."""
        env = self.make(3)
        # Agents that are in an episode, and those that have been active in their episode.
        playing = np.ones((3, env.num_agents), np.bool_)
        has_acted = np.zeros_like(playing)
        for turn in play(env, seed=12):
            playing |= turn.began
            has_acted |= turn.began
            ended = turn.result.terminated | turn.result.truncated
            require(
                not (ended & ~playing).any(),
                "9. an agent whose episode has ended does not end again before it is active again",
            )
            require(
                not turn.result.rewards[~(playing | turn.active)].any(),
                "9. an agent whose episode has ended gets no reward before it is active again",
            )
            playing &= ~ended
            has_acted &= ~ended
            require(
                not (has_acted & turn.over[:, None]).any(),
                "9. when a copy has finished, the episode of every agent in it has ended",
            )
            playing[turn.over] = True

    def test_masks_allow_something(self) -> None:
        """10. `mask` writes all of `out`, changes nothing, and allows active agents an action."""
        env = self.make(3)
        rng = np.random.default_rng(0)
        if not any(spec.masked for spec in env.agents):
            return
        played = turns(env, [check_masks] * env.num_agents, rng)
        for _, (result, _, _) in zip(range(TURNS), played, strict=False):
            # After a truncation learners need the mask of the next action.
            for agent in np.flatnonzero(result.truncated.any(0)).tolist():
                if env.agents[agent].masked:
                    look_at_masks(env, agent)
        env.close()

    def test_actions_and_observations_stay_the_caller_s(self) -> None:
        """11. The caller may reuse the arrays that it passed to `observe`, `mask` and `act`."""
        guarantee = "11. `act` keeps no reference to the actions, whose array the caller reuses"
        self._require_same(guarantee, 3, 6, {"spoil_actions": False}, {"spoil_actions": True})

    def test_environments_share_nothing(self) -> None:
        """12. Two environments in one process share nothing."""
        alone = play(self.make(2), seed=13)
        env, other = self.make(2), self.make(2)
        other.reset(seeds_of(2, 14), every(2))
        play_turns(other, 5, seed=14)
        together = play(env, seed=13, meanwhile=lambda: play_turns(other, 1, seed=15))
        other.close()
        guarantee = "12. environments that are used side by side share nothing"
        require_same(alone, together, guarantee)

    def test_finished_copies_have_episode_metrics(self) -> None:
        """13. `TurnResult.info` holds the declared metrics, finite in copies that have finished."""
        env = self.make(3)
        for turn in play(env, seed=16):
            info, over = turn.result.info, turn.over & turn.began.any(1)
            for name in env.episode_metrics:
                require(
                    name in info and info[name].shape == (3,),
                    f"13. every `end_turn` returns the episode metric {name!r}, as [num_envs]",
                )
                require(
                    np.isfinite(info[name][over]).all(),
                    f"13. the episode metric {name!r} is finite where an episode has ended",
                )

    def test_states_of_critics_are_observed(self) -> None:
        """16. `observe_state` writes all of `out` with finite numbers, and changes nothing."""
        env = self.make(3)
        env.reset(seeds_of(3, 18), every(3))
        env.begin_turn()
        for agent, spec in enumerate(env.agents):
            space = spec.state_space
            if space is None:
                continue
            env.observe(agent, room_for(env, agent))
            looks = []
            for poison in POISONS:
                state = np.empty((3, *(space.shape or ())), space.dtype)
                state.view(np.uint8)[...] = poison
                env.observe_state(agent, state)
                looks.append(state)
            require(
                all(np.array_equal(look, looks[0]) for look in looks),
                "16. `observe_state` writes all of `out`, and changes nothing",
            )
            require(np.isfinite(looks[0]).all(), "16. the state of critics is finite")

    def test_rewards_so_far_are_those_of_the_turn(self) -> None:
        """14. `rewards_so_far` is 0 as a turn starts, and equals the turn's rewards as it ends."""
        env, fresh = self.make(3), self.make(3)
        so_far = env.rewards_so_far
        if so_far is None:
            return
        env.reset(seeds_of(3, 17), every(3))
        for turn in range(TURNS):
            rewards = play_turns(env, 1, seed=turn)[0].result.rewards
            require(
                env.rewards_so_far is so_far,
                "14. `rewards_so_far` is always the same array, which the game updates",
            )
            require(
                np.array_equal(so_far, rewards),
                "14. `rewards_so_far` ends every turn equal to the rewards that `end_turn` returns",
            )
            if rewards.any():
                break
        for each in (env, fresh):
            each.reset(seeds_of(3, 18), every(3))
            each.begin_turn()
            look(each, each.turn_groups[0][0])
        require(
            fresh.rewards_so_far is not None and np.array_equal(so_far, fresh.rewards_so_far),
            "14. `rewards_so_far` starts at 0 in every turn, without rewards of the previous turn",
        )
        env.close()
        fresh.close()

    def test_rewards_before_an_agent_acts_are_in_rewards_so_far(self) -> None:
        """14. `rewards_so_far` is maintained if agents get rewards while others act."""
        single = self.make(1)
        num_agents = single.num_agents
        single.close()
        if single.rewards_so_far is not None or len(single.turn_groups) == 1:
            return
        env = self.make(2 if num_agents != 2 else 3)  # copies and agents differ in number
        env.reset(seeds_of(env.num_envs, 19), every(env.num_envs))
        play_turns(env, 1, seed=19)
        watch = EarlyRewards(env)
        play_turns(watch, TURNS, seed=19)
        names, found = [agent.name for agent in env.agents], watch.found
        env.close()
        if found is not None:
            raise ContractError(
                f"the environment breaks its contract: 14. {names[found.agent]} got a reward of "
                f"{found.value:g} in turn {found.turn} of copy {found.copy} before it acted (by "
                f"`{found.table}`), and there is no `rewards_so_far`, so its previous action would "
                "not be credited with it; let `rewards_so_far` be the float32 array that `act` "
                "adds rewards to"
            )

    def test_observations_lie_in_their_space(self) -> None:
        """7. Observations are in the declared space, with its shape and dtype."""
        trace = play(self.make(2), seed=9)
        env = self.make(2)
        for turn in trace:
            for spec, rows in zip(env.agents, turn.observations, strict=True):
                require(np.isfinite(rows).all(), f"7. observations of {spec.name} are finite")
                require(
                    all(map(spec.observation_space.contains, rows)),
                    f"7. observations of {spec.name} are in {spec.observation_space}",
                )

    def test_a_saved_world_goes_on_alike(self) -> None:
        """8. `state` returns plain data, and `restore` continues exactly from it."""
        env, twin = self.make(3), self.make(3)
        for each, seed in ((env, 1), (twin, 2)):
            each.reset(seeds_of(3, seed), every(3))
        play_turns(env, 3)
        try:
            saved = env.state()
        except NotImplementedError:
            return
        try:
            data = pack(saved)
        except (TypeError, ValueError) as error:
            raise ContractError(
                f"the environment breaks its contract: 8. `state` is plain data: {error}"
            ) from None
        twin.restore(unpack(data))
        trace, again = play_turns(env, TURNS), play_turns(twin, TURNS)
        require_same(trace, again, "8. `restore` continues exactly where `state` was called")

    def test_options_wait_for_the_next_reset(self) -> None:
        """15. `set_option` changes a copy at its next reset, and nothing before."""
        env, twin = self.make(3), self.make(3)
        for each in (env, twin):
            each.reset(seeds_of(3, 20), every(3))
        values = env.options() | dict(self.option_values)
        for name in env.changeable_options:
            if name in values:
                env.set_option(name, values[name])
        trace, other = play_turns(env, 1), play_turns(twin, 1)
        require_same(trace, other, "15. `set_option` changes nothing before a copy's next reset")
        for each in (env, twin):
            each.close()

    def test_pictures_are_pictures(self) -> None:
        """`render` returns [height, width, 3] uint8, if the game can be rendered."""
        env = self.make(1)
        env.reset(seeds_of(1, 1), every(1))
        try:
            picture = env.render()
        except NotImplementedError:
            return
        require(
            picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8,
            f"`render` gives [height, width, 3] uint8, not {picture.shape} {picture.dtype}",
        )


def check_env(factory: Callable[[int], VectorEnv]) -> None:
    """Run the whole suite on the environments that `factory(num_envs)` makes.

    Raises:
        ContractError: the environment breaks a guarantee; the message states the first one broken.
        UsageError: the factory makes another library's environment.
    """
    if isinstance(factory, type):
        kind = kind_of(factory)
    else:
        made = factory(1)
        kind = kind_of(made)
        if hasattr(made, "close"):
            made.close()
    if kind in CHECKERS:
        raise UsageError(
            f"check_env tests a VectorEnv, which holds all copies of a game; this is one copy, and "
            f"{CHECKERS[kind]} tests it"
        )

    class Suite(VectorEnvContract):
        def make(self, num_envs: int) -> VectorEnv:
            return factory(num_envs)

    suite = Suite()
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_"):
            test()
