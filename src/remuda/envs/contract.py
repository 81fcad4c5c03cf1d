"""The contract of `VectorEnv` as a suite of tests, for the games here and for users' own.

In a test file of your own:

    from remuda.envs.contract import VectorEnvContract

    class TestMyGame(VectorEnvContract):
        def make(self, num_envs):
            return MyGame(num_envs)

Or, without a test runner, `check_env(lambda num_envs: MyGame(num_envs))`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np

from remuda.checkpoint.state import pack, unpack
from remuda.envs.early_rewards import EarlyRewards
from remuda.envs.kinds import CHECKERS, kind_of
from remuda.envs.scripted import turns
from remuda.envs.traces import (
    TURNS,
    buffer,
    check_masks,
    look,
    look_at_masks,
    play,
    play_turns,
    require,
    seeds_of,
)
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError, UsageError

POISONS = (0x5A, 0xA5)
"""Buffers are filled with these bytes before an observation; both must be gone after."""


class VectorEnvContract:
    """Inherit, and give `make`. Each test names the guarantee of `VectorEnv` that it holds to."""

    def make(self, num_envs: int) -> VectorEnv:
        """Build the environment under test."""
        raise NotImplementedError("give `make(self, num_envs)`, which builds your environment")

    def test_what_it_declares(self) -> None:
        """It declares its agents, and every agent is in exactly one turn group."""
        env = self.make(3)
        require(env.num_envs == 3, "num_envs is the number of copies that was asked for")
        require(len(env.agents) > 0, "there is at least one agent")
        names = [agent.name for agent in env.agents]
        require(len(set(names)) == len(names), f"agents have names of their own, not {names}")
        dealt = sorted(agent for group in env.turn_groups for agent in group)
        require(
            dealt == list(range(env.num_agents)),
            f"every agent is in one turn group, not {env.turn_groups}",
        )
        env.close()

    def test_same_seeds_same_game(self) -> None:
        """1. The same seeds and actions give the same observations and results."""
        first, second = (play(self.make(3), seed=5) for _ in range(2))
        for env in range(3):
            require(
                first.same_as(second, env, env),
                "1. the same seeds and actions give the same observations and results",
            )

    def test_copies_share_nothing(self) -> None:
        """2. Copies share nothing: one copy alone goes as it does among others."""
        many = play(self.make(4), seed=7)
        alone = play(self.make(1), seed=7)
        other_acts = play(self.make(4), seed=7, others_act_differently=True)
        said = "2. copies share nothing: what happens in one never changes another"
        require(many.same_as(alone), said)
        require(many.same_as(other_acts), said)

    def test_reset_restarts_its_mask_alone(self) -> None:
        """3. `reset` restarts the copies in its mask and leaves the others alone."""
        env, twin = self.make(3), self.make(3)
        for each in (env, twin):
            each.reset(seeds_of(3, 1), np.ones(3, np.bool_))
            play_turns(each, 3)
        mask = np.array([False, True, False])
        env.reset(np.array([-1, 99, -1]), mask)
        fresh = self.make(1)
        fresh.reset(np.array([99]), np.ones(1, np.bool_))
        for agent in range(env.num_agents):
            now, before, new = look(env, agent), look(twin, agent), look(fresh, agent)
            require(
                np.array_equal(now[[0, 2]], before[[0, 2]]),
                "3. `reset` leaves the copies outside its mask alone, and reads no seed of theirs",
            )
            require(
                np.array_equal(now[1], new[0]),
                "3. `reset` restarts the copies in its mask, each from its own seed",
            )

    def test_somebody_is_active_after_reset(self) -> None:
        """3. After `reset` at least one agent in each copy of the mask is active."""
        env = self.make(2)
        play(env, seed=3)
        env.reset(seeds_of(2, 4), np.ones(2, np.bool_))
        require(
            env.active.shape == (2, env.num_agents) and env.active.dtype == np.bool_,
            f"`active` is {(2, env.num_agents)} bool, not {env.active.shape} {env.active.dtype}",
        )
        require(
            bool(env.active.any(1).all()),
            "3. after `reset` at least one agent in each copy of the mask is active",
        )

    def test_observe_writes_all_of_out_and_changes_nothing(self) -> None:
        """4. `observe` writes all of `out` and nothing else, and changes nothing in the world."""
        env = self.make(3)
        env.reset(seeds_of(3, 2), np.ones(3, np.bool_))
        env.begin_turn()
        for agent in range(env.num_agents):
            looks = []
            for poison in (*POISONS, *POISONS):
                guarded = buffer(env, agent, extra=2)
                guarded.view(np.uint8)[...] = poison
                env.observe(agent, guarded[1:-1])
                looks.append(guarded[1:-1].copy())
                edges = guarded[[0, -1]].copy().view(np.uint8)
                require(bool((edges == poison).all()), "4. `observe` writes nothing but `out`")
            require(
                all(np.array_equal(look, looks[0]) for look in looks),
                "4. `observe` writes all of `out`, and changes nothing in the world",
            )

    def test_actions_of_the_inactive_are_ignored(self) -> None:
        """5. Actions of agents that are not active are ignored."""
        traces = [play(self.make(2), seed=11, inactive_action=action) for action in (0, 1)]
        require(
            all(traces[0].same_as(traces[1], env, env) for env in range(2)),
            "5. actions of agents that are not active are ignored",
        )

    def test_results_are_well_formed(self) -> None:
        """6. Termination is not truncation; results have their shapes and dtypes."""
        env = self.make(3)
        shape = (3, env.num_agents)
        env.reset(seeds_of(3, 8), np.ones(3, np.bool_))
        trace = play(env, seed=8)
        rows = zip(trace.rewards, trace.terminated, trace.truncated, trace.active, strict=True)
        for rewards, terminated, truncated, active in rows:
            require(
                rewards.shape == shape and rewards.dtype == np.float32,
                f"rewards are {shape} float32, not {rewards.shape} {rewards.dtype}",
            )
            for name, flags in (
                ("terminated", terminated),
                ("truncated", truncated),
                ("active", active),
            ):
                require(
                    flags.shape == shape and flags.dtype == np.bool_,
                    f"{name} is {shape} bool, not {flags.shape} {flags.dtype}",
                )
            require(bool(np.isfinite(rewards).all()), "rewards are finite")
            require(
                not (terminated & truncated).any(),
                "6. termination is not truncation, and an agent never has both",
            )
            require(
                env.may_return_at_once or not (active & (terminated | truncated)).any(),
                "6. an agent whose episode ended is not active (but where may_return_at_once)",
            )

    def test_the_dead_are_left_alone(self) -> None:
        """9. Whose own episode has ended is given nothing, and ends no second time."""
        env = self.make(3)
        trace = play(env, seed=12)
        # Who is in an episode of its own, and who has been active in it.
        playing = np.ones((3, env.num_agents), np.bool_)
        has_acted = np.zeros_like(playing)
        rows = zip(
            trace.began,
            trace.rewards,
            trace.terminated,
            trace.truncated,
            trace.active,
            trace.over,
            strict=True,
        )
        for began, rewards, terminated, truncated, active, over in rows:
            playing |= began
            has_acted |= began
            ended = terminated | truncated
            require(
                not (ended & ~playing).any(),
                "9. an agent whose episode has ended ends no second time before it is active again",
            )
            require(
                not rewards[~(playing | active)].any(),
                "9. an agent whose episode has ended is given nothing before it is active again",
            )
            playing &= ~ended
            has_acted &= ~ended
            require(
                not (has_acted & over[:, None]).any(),
                "9. when a copy is over, the episode of every agent in it has ended",
            )
            playing[over] = True

    def test_masks_allow_something(self) -> None:
        """10. `mask` writes all of `out`, changes nothing, and allows the active something."""
        env = self.make(3)
        random = np.random.default_rng(0)
        if not any(spec.masked for spec in env.agents):
            return
        for _, (result, _, _) in zip(
            range(TURNS), turns(env, [check_masks] * env.num_agents, random), strict=False
        ):
            # Where episodes were truncated, it is asked what would have been allowed.
            for agent in np.flatnonzero(result.truncated.any(0)).tolist():
                if env.agents[agent].masked:
                    look_at_masks(env, agent)
        env.close()

    def test_actions_and_observations_stay_the_caller_s(self) -> None:
        """11. The arrays that `observe`, `mask` and `act` were given may be used again."""
        first, second = (play(self.make(3), seed=6, spoil_actions=spoil) for spoil in (False, True))
        require(
            all(first.same_as(second, env, env) for env in range(3)),
            "11. `act` keeps no hold of the array of actions, which its caller uses again",
        )

    def test_environments_share_nothing(self) -> None:
        """12. Two environments side by side share nothing, nor do copies made later."""
        alone = play(self.make(2), seed=13)
        env, other = self.make(2), self.make(2)
        other.reset(seeds_of(2, 14), np.ones(2, np.bool_))
        play_turns(other, 5, seed=14)
        beside = play(env, seed=13, meanwhile=lambda: play_turns(other, 1, seed=15))
        other.close()
        require(
            all(alone.same_as(beside, copy, copy) for copy in range(2)),
            "12. environments that are used side by side share nothing",
        )

    def test_facts_are_told_when_an_episode_is_over(self) -> None:
        """13. `TurnResult.info` holds the promised facts, finite in copies that are over."""
        env = self.make(3)
        trace = play(env, seed=16)
        for info, over in zip(trace.info, trace.over, strict=True):
            for name in env.facts:
                require(
                    name in info and info[name].shape == (3,),
                    f"13. the fact {name!r} is told by every `end_turn`, as [num_envs]",
                )
                require(
                    bool(np.isfinite(info[name][over]).all()),
                    f"13. the fact {name!r} is finite where an episode is over",
                )

    def test_rewards_so_far_are_those_of_the_turn(self) -> None:
        """14. `rewards_so_far` is one array, begins anew with a turn, and ends as its rewards."""
        env, fresh = self.make(3), self.make(3)
        so_far = env.rewards_so_far
        if so_far is None:
            return
        env.reset(seeds_of(3, 17), np.ones(3, np.bool_))
        for turn in range(TURNS):
            given = play_turns(env, 1, seed=turn).rewards[0]
            require(
                env.rewards_so_far is so_far,
                "14. `rewards_so_far` is one array for good, which the game keeps up to date",
            )
            require(
                np.array_equal(so_far, given),
                "14. `rewards_so_far` ends a turn as the rewards that `end_turn` returns",
            )
            if given.any():
                break
        for each in (env, fresh):
            each.reset(seeds_of(3, 18), np.ones(3, np.bool_))
            each.begin_turn()
            look(each, each.turn_groups[0][0])
        require(
            fresh.rewards_so_far is not None and np.array_equal(so_far, fresh.rewards_so_far),
            "14. `rewards_so_far` begins anew with every turn: nothing of the turn before is in it",
        )
        env.close()
        fresh.close()

    def test_rewards_before_an_agent_s_act_are_told(self) -> None:
        """14. `rewards_so_far` is kept where agents are given something while others act."""
        one = self.make(1)
        is_told, groups, num_agents = (
            one.rewards_so_far is not None,
            one.turn_groups,
            one.num_agents,
        )
        one.close()
        if is_told or len(groups) == 1:
            return
        env = self.make(2 if num_agents != 2 else 3)  # so that copies and agents are told apart
        env.reset(seeds_of(env.num_envs, 19), np.ones(env.num_envs, np.bool_))
        play_turns(env, 1, seed=19)
        watch = EarlyRewards(env)
        play_turns(env, TURNS, seed=19, watch=watch)
        names, found = [agent.name for agent in env.agents], watch.found
        env.close()
        if found is not None:
            name = names[found.agent]
            raise ContractError(
                f"the environment breaks its contract: 14. {name} had been given {found.value:g} "
                f"in turn {found.turn} of copy {found.copy} before it acted (by `{found.table}`), "
                "and there is no `rewards_so_far` that tells, so what it did before would not be "
                "credited with it; let `rewards_so_far` be the float32 array that `act` adds "
                "rewards to"
            )

    def test_observations_lie_in_their_space(self) -> None:
        """7. Observations lie in the declared space, with its shape and dtype."""
        trace = play(self.make(2), seed=9)
        env = self.make(2)
        for observations in trace.observations:
            for agent, seen in enumerate(observations):
                space = env.agents[agent].observation_space
                require(
                    bool(np.isfinite(seen).all()),
                    f"7. what {env.agents[agent].name} observes is finite",
                )
                for row in seen:
                    require(
                        bool(space.contains(row)),
                        f"7. what {env.agents[agent].name} observes lies in {space}",
                    )

    def test_a_saved_world_goes_on_alike(self) -> None:
        """8. What `state` returned is plain data, and `restore` goes on exactly there."""
        env, twin = self.make(3), self.make(3)
        for each, seed in ((env, 1), (twin, 2)):
            each.reset(seeds_of(3, seed), np.ones(3, np.bool_))
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
        for copy in range(3):
            require(
                trace.same_as(again, copy, copy),
                "8. `restore` goes on exactly where `state` was called",
            )

    def test_pictures_are_pictures(self) -> None:
        """`render` gives [height, width, 3] uint8, where the game has a picture."""
        env = self.make(1)
        env.reset(seeds_of(1, 1), np.ones(1, np.bool_))
        try:
            picture = env.render()
        except NotImplementedError:
            return
        require(
            picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8,
            f"`render` gives [height, width, 3] uint8, not {picture.shape} {picture.dtype}",
        )


def check_env(factory: Callable[[int], VectorEnv]) -> None:
    """Run the whole suite on what `factory(num_envs)` builds.

    Raises:
        ContractError: the first guarantee that the environment breaks.
        UsageError: what it makes is an environment of another library.
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
