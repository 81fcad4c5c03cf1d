"""The contract of `VectorEnv` as a suite of tests, for the games here and for anybody's own.

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
from dataclasses import dataclass
from itertools import chain

import numpy as np

from remuda.checkpoint.state import pack, unpack
from remuda.envs.early_rewards import EarlyRewards
from remuda.envs.scripted import (
    allows_something,
    at_random,
    masks_of,
    possibilities,
    sample_actions,
    turns,
)
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError
from remuda.types import Array, Bools, Integers

POISONS = (0x5A, 0xA5)
"""Buffers are filled with these bytes before an observation; both must be gone after."""
TURNS = 130
"""Turns that each check plays; enough for most games to end an episode."""


@dataclass
class Trace:
    """What happened in a number of turns, by turn; arrays are copies."""

    observations: list[list[Array]]
    rewards: list[Array]
    terminated: list[Bools]
    truncated: list[Bools]
    active: list[Bools]
    """After the turn."""
    began: list[Bools]
    """Who was active at any time in the turn."""
    over: list[Bools]
    """[num_envs], by turn: in which copies nobody was active any more."""
    info: list[dict[str, Array]]
    so_far: list[Array]
    """What each had been given in the turn when it observed; zeros where the game says nothing."""

    def same_as(self, other: Trace, env: int = 0, other_env: int = 0) -> bool:
        """Whether one copy here went as another did there."""
        pairs = [
            *zip(chain(*self.observations), chain(*other.observations), strict=True),
            *zip(self.rewards, other.rewards, strict=True),
            *zip(self.so_far, other.so_far, strict=True),
            *zip(self.terminated, other.terminated, strict=True),
            *zip(self.truncated, other.truncated, strict=True),
            *zip(self.active, other.active, strict=True),
        ]
        return all(np.array_equal(a[env], b[other_env]) for a, b in pairs)


class VectorEnvContract:
    """Inherit, and give `make`. Each test names the guarantee of `VectorEnv` that it holds to."""

    def make(self, num_envs: int) -> VectorEnv:
        """Build the environment under test."""
        raise NotImplementedError("give `make(self, num_envs)`, which builds your environment")

    def test_what_it_declares(self) -> None:
        """It declares its agents, and every agent is in exactly one turn group."""
        env = self.make(3)
        _require(env.num_envs == 3, "num_envs is the number of copies that was asked for")
        _require(len(env.agents) > 0, "there is at least one agent")
        names = [agent.name for agent in env.agents]
        _require(len(set(names)) == len(names), f"agents have names of their own, not {names}")
        dealt = sorted(agent for group in env.turn_groups for agent in group)
        _require(
            dealt == list(range(env.num_agents)),
            f"every agent is in one turn group, not {env.turn_groups}",
        )
        env.close()

    def test_same_seeds_same_game(self) -> None:
        """1. The same seeds and actions give the same observations and results."""
        first, second = (play(self.make(3), seed=5) for _ in range(2))
        for env in range(3):
            _require(
                first.same_as(second, env, env),
                "1. the same seeds and actions give the same observations and results",
            )

    def test_copies_share_nothing(self) -> None:
        """2. Copies share nothing: one copy alone goes as it does among others."""
        many = play(self.make(4), seed=7)
        alone = play(self.make(1), seed=7)
        other_acts = play(self.make(4), seed=7, others_act_differently=True)
        said = "2. copies share nothing: what happens in one never changes another"
        _require(many.same_as(alone), said)
        _require(many.same_as(other_acts), said)

    def test_reset_restarts_its_mask_alone(self) -> None:
        """3. `reset` restarts the copies in its mask and leaves the others alone."""
        env, twin = self.make(3), self.make(3)
        for each in (env, twin):
            each.reset(_seeds(3, 1), np.ones(3, np.bool_))
            _turns(each, 3)
        mask = np.array([False, True, False])
        env.reset(np.array([-1, 99, -1]), mask)
        fresh = self.make(1)
        fresh.reset(np.array([99]), np.ones(1, np.bool_))
        for agent in range(env.num_agents):
            now, before, new = _look(env, agent), _look(twin, agent), _look(fresh, agent)
            _require(
                np.array_equal(now[[0, 2]], before[[0, 2]]),
                "3. `reset` leaves the copies outside its mask alone, and reads no seed of theirs",
            )
            _require(
                np.array_equal(now[1], new[0]),
                "3. `reset` restarts the copies in its mask, each from its own seed",
            )

    def test_somebody_is_active_after_reset(self) -> None:
        """3. After `reset` somebody in the copies in the mask is active."""
        env = self.make(2)
        play(env, seed=3)
        env.reset(_seeds(2, 4), np.ones(2, np.bool_))
        _require(
            env.active.shape == (2, env.num_agents) and env.active.dtype == np.bool_,
            f"`active` is {(2, env.num_agents)} bool, not {env.active.shape} {env.active.dtype}",
        )
        _require(
            bool(env.active.any(1).all()),
            "3. after `reset` somebody in each copy of the mask is active",
        )

    def test_observe_writes_all_of_out_and_changes_nothing(self) -> None:
        """4. `observe` writes all of `out` and nothing else, and changes nothing in the world."""
        env = self.make(3)
        env.reset(_seeds(3, 2), np.ones(3, np.bool_))
        env.begin_turn()
        for agent in range(env.num_agents):
            looks = []
            for poison in (*POISONS, *POISONS):
                guarded = _buffer(env, agent, extra=2)
                guarded.view(np.uint8)[...] = poison
                env.observe(agent, guarded[1:-1])
                looks.append(guarded[1:-1].copy())
                edges = guarded[[0, -1]].copy().view(np.uint8)
                _require(bool((edges == poison).all()), "4. `observe` writes nothing but `out`")
            _require(
                all(np.array_equal(look, looks[0]) for look in looks),
                "4. `observe` writes all of `out`, and changes nothing in the world",
            )

    def test_actions_of_the_inactive_are_ignored(self) -> None:
        """5. Actions of agents that are not active are ignored."""
        traces = [play(self.make(2), seed=11, inactive_action=action) for action in (0, 1)]
        _require(
            all(traces[0].same_as(traces[1], env, env) for env in range(2)),
            "5. actions of agents that are not active are ignored",
        )

    def test_results_are_well_formed(self) -> None:
        """6. Termination is not truncation; results have their shapes and dtypes."""
        env = self.make(3)
        shape = (3, env.num_agents)
        env.reset(_seeds(3, 8), np.ones(3, np.bool_))
        trace = play(env, seed=8)
        rows = zip(trace.rewards, trace.terminated, trace.truncated, trace.active, strict=True)
        for rewards, terminated, truncated, active in rows:
            _require(
                rewards.shape == shape and rewards.dtype == np.float32,
                f"rewards are {shape} float32, not {rewards.shape} {rewards.dtype}",
            )
            for name, flags in (
                ("terminated", terminated),
                ("truncated", truncated),
                ("active", active),
            ):
                _require(
                    flags.shape == shape and flags.dtype == np.bool_,
                    f"{name} is {shape} bool, not {flags.shape} {flags.dtype}",
                )
            _require(bool(np.isfinite(rewards).all()), "rewards are finite")
            _require(
                not (terminated & truncated).any(),
                "6. termination is not truncation, and an agent never has both",
            )
            _require(
                not (active & (terminated | truncated)).any(),
                "6. an agent whose episode ended is not active",
            )

    def test_the_dead_are_left_alone(self) -> None:
        """9. Whose own episode has ended is given nothing, and ends no second time."""
        env = self.make(3)
        trace = play(env, seed=12)
        # Who is in an episode of its own, and who has been active in it.
        playing = np.ones((3, env.num_agents), np.bool_)
        has_acted = np.zeros_like(playing)
        rows = zip(
            trace.began, trace.rewards, trace.terminated, trace.truncated, trace.over, strict=True
        )
        for began, rewards, terminated, truncated, over in rows:
            playing |= began
            has_acted |= began
            ended = terminated | truncated
            _require(
                not (ended & ~playing).any(),
                "9. an agent whose episode has ended ends no second time before it is active again",
            )
            _require(
                not rewards[~playing].any(),
                "9. an agent whose episode has ended is given nothing before it is active again",
            )
            playing &= ~ended
            has_acted &= ~ended
            _require(
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
        for _ in zip(
            range(TURNS), turns(env, [_checks_masks] * env.num_agents, random), strict=False
        ):
            pass
        env.close()

    def test_actions_and_observations_stay_the_caller_s(self) -> None:
        """11. The arrays that `observe`, `mask` and `act` were given may be used again."""
        first, second = (play(self.make(3), seed=6, spoil_actions=spoil) for spoil in (False, True))
        _require(
            all(first.same_as(second, env, env) for env in range(3)),
            "11. `act` keeps no hold of the array of actions, which its caller uses again",
        )

    def test_environments_share_nothing(self) -> None:
        """12. Two environments side by side share nothing, nor do copies made later."""
        alone = play(self.make(2), seed=13)
        env, other = self.make(2), self.make(2)
        other.reset(_seeds(2, 14), np.ones(2, np.bool_))
        _turns(other, 5, seed=14)
        beside = play(env, seed=13, meanwhile=lambda: _turns(other, 1, seed=15))
        other.close()
        _require(
            all(alone.same_as(beside, copy, copy) for copy in range(2)),
            "12. environments that are used side by side share nothing",
        )

    def test_facts_are_told_when_an_episode_is_over(self) -> None:
        """13. `TurnResult.info` holds the promised facts, finite in copies that are over."""
        env = self.make(3)
        trace = play(env, seed=16)
        for info, over in zip(trace.info, trace.over, strict=True):
            for name in env.facts:
                _require(
                    name in info and info[name].shape == (3,),
                    f"13. the fact {name!r} is told by every `end_turn`, as [num_envs]",
                )
                _require(
                    bool(np.isfinite(info[name][over]).all()),
                    f"13. the fact {name!r} is finite where an episode is over",
                )

    def test_rewards_so_far_are_those_of_the_turn(self) -> None:
        """14. `rewards_so_far` is one array, begins anew with a turn, and ends as its rewards."""
        env, fresh = self.make(3), self.make(3)
        so_far = env.rewards_so_far
        if so_far is None:
            return
        env.reset(_seeds(3, 17), np.ones(3, np.bool_))
        for turn in range(TURNS):
            given = _turns(env, 1, seed=turn).rewards[0]
            _require(
                env.rewards_so_far is so_far,
                "14. `rewards_so_far` is one array for good, which the game keeps up to date",
            )
            _require(
                np.array_equal(so_far, given),
                "14. `rewards_so_far` ends a turn as the rewards that `end_turn` returns",
            )
            if given.any():
                break
        for each in (env, fresh):
            each.reset(_seeds(3, 18), np.ones(3, np.bool_))
            each.begin_turn()
            _look(each, each.turn_groups[0][0])
        _require(
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
        env.reset(_seeds(env.num_envs, 19), np.ones(env.num_envs, np.bool_))
        _turns(env, 1, seed=19)
        watch = EarlyRewards(env)
        _turns(env, TURNS, seed=19, watch=watch)
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
                _require(
                    bool(np.isfinite(seen).all()),
                    f"7. what {env.agents[agent].name} observes is finite",
                )
                for row in seen:
                    _require(
                        bool(space.contains(row)),
                        f"7. what {env.agents[agent].name} observes lies in {space}",
                    )

    def test_a_saved_world_goes_on_alike(self) -> None:
        """8. What `state` returned is plain data, and `restore` goes on exactly there."""
        env, twin = self.make(3), self.make(3)
        for each, seed in ((env, 1), (twin, 2)):
            each.reset(_seeds(3, seed), np.ones(3, np.bool_))
        _turns(env, 3)
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
        trace, again = _turns(env, TURNS), _turns(twin, TURNS)
        for copy in range(3):
            _require(
                trace.same_as(again, copy, copy),
                "8. `restore` goes on exactly where `state` was called",
            )

    def test_pictures_are_pictures(self) -> None:
        """`render` gives [height, width, 3] uint8, where the game has a picture."""
        env = self.make(1)
        env.reset(_seeds(1, 1), np.ones(1, np.bool_))
        try:
            picture = env.render()
        except NotImplementedError:
            return
        _require(
            picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8,
            f"`render` gives [height, width, 3] uint8, not {picture.shape} {picture.dtype}",
        )


def check_env(factory: Callable[[int], VectorEnv]) -> None:
    """Run the whole suite on what `factory(num_envs)` builds.

    Raises:
        ContractError: the first guarantee that the environment breaks.
    """

    class Suite(VectorEnvContract):
        def make(self, num_envs: int) -> VectorEnv:
            return factory(num_envs)

    suite = Suite()
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_"):
            test()


def play(
    env: VectorEnv,
    seed: int,
    *,
    others_act_differently: bool = False,
    inactive_action: int | None = None,
    spoil_actions: bool = False,
    meanwhile: Callable[[], object] | None = None,
) -> Trace:
    """Play `TURNS` turns with random actions; the first copy's depend on the seed alone."""
    env.reset(_seeds(env.num_envs, seed), np.ones(env.num_envs, np.bool_))
    trace = _turns(
        env,
        TURNS,
        seed=seed,
        others=1 if others_act_differently else 0,
        inactive_action=inactive_action,
        spoil_actions=spoil_actions,
        meanwhile=meanwhile,
    )
    env.close()
    return trace


def _turns(
    env: VectorEnv,
    count: int,
    seed: int = 0,
    others: int = 0,
    inactive_action: int | None = None,
    spoil_actions: bool = False,
    meanwhile: Callable[[], object] | None = None,
    watch: EarlyRewards | None = None,
) -> Trace:
    trace = Trace([], [], [], [], [], [], [], [], [])
    streams = [np.random.default_rng([seed, e, others if e else 0]) for e in range(env.num_envs)]
    active = env.active
    if env.rewards_so_far is not None:
        shape, dtype = env.rewards_so_far.shape, env.rewards_so_far.dtype
        _require(
            shape == active.shape and dtype == np.float32,
            f"14. `rewards_so_far` is {active.shape} float32, not {shape} {dtype}",
        )
    for _ in range(count):
        if meanwhile is not None:
            meanwhile()
        began = active.copy()
        if watch is not None:
            watch.begin()
        env.begin_turn()
        if watch is not None:
            watch.begun()
        seen: list[Array] = [np.empty((env.num_envs, 0))] * env.num_agents
        so_far: Array = np.zeros(active.shape, np.float32)
        for group in env.turn_groups:
            began |= active
            acts = active[:, group].copy()
            for agent in group:
                seen[agent] = _look(env, agent)
                if watch is not None:
                    watch.observed(agent)
                if env.rewards_so_far is not None:
                    so_far[:, agent] = env.rewards_so_far[:, agent]
            chosen = [_draw(env, agent, streams) for agent in group]
            for i, agent in enumerate(group):
                if inactive_action is not None:
                    chosen[i][~acts[:, i]] = inactive_action
                env.act(agent, chosen[i])
                if spoil_actions:
                    chosen[i].view(np.uint8)[...] = 0x5A
        if watch is not None:
            watch.acted()
        result = env.end_turn()
        if watch is not None:
            watch.ended(result.rewards)
        _require(
            env.active is active,
            "`active` is one array for good, which reset, act and end_turn keep up to date",
        )
        trace.observations.append(seen)
        trace.rewards.append(result.rewards.copy())
        trace.so_far.append(so_far)
        trace.terminated.append(result.terminated.copy())
        trace.truncated.append(result.truncated.copy())
        trace.active.append(active.copy())
        over: Bools = ~np.any(active, axis=1)
        trace.began.append(began)
        trace.over.append(over)
        trace.info.append({name: np.array(told) for name, told in result.info.items()})
        if over.any():
            # Only copies that restart draw, so that a copy's stream depends on nothing else.
            seeds = np.array(
                [stream.integers(2**62) if over[e] else -1 for e, stream in enumerate(streams)]
            )
            env.reset(seeds, over)
            _require(
                bool(active[over].any(1).all()),
                "3. after `reset` somebody in each copy of the mask is active",
            )
    return trace


def _draw(env: VectorEnv, agent: int, streams: list[np.random.Generator]) -> Array:
    """An action for every copy that is allowed there, each from the copy's own stream."""
    space, masks = env.agents[agent].action_space, masks_of(env, agent)
    return np.concatenate(
        [
            sample_actions(space, 1, stream, None if masks is None else masks[e : e + 1])
            for e, stream in enumerate(streams)
        ]
    )


def _checks_masks(env: VectorEnv, agent: int, seen: Array, random: np.random.Generator) -> Array:
    """A scripted policy that looks closely at what it is allowed."""
    spec = env.agents[agent]
    if spec.masked:
        active, before = env.active.copy(), _look(env, agent)
        found = []
        for start in (False, True):
            masks: Bools = np.full((env.num_envs, possibilities(spec)), start, np.bool_)
            env.mask(agent, masks)
            found.append(masks)
        _require(
            np.array_equal(found[0], found[1]),
            "10. `mask` writes all of `out`, and the same when asked again",
        )
        _require(
            np.array_equal(before, _look(env, agent)) and np.array_equal(active, env.active),
            "10. `mask` changes nothing in the world",
        )
        _require(
            bool(allows_something(spec, found[0])[active[:, agent]].all()),
            f"10. {spec.name} may always do something where it is active",
        )
    return at_random(env, agent, seen, random)


def _look(env: VectorEnv, agent: int) -> Array:
    out = _buffer(env, agent)
    env.observe(agent, out)
    return out


def _buffer(env: VectorEnv, agent: int, extra: int = 0) -> Array:
    space = env.agents[agent].observation_space
    return np.zeros((env.num_envs + extra, *(space.shape or ())), space.dtype)


def _seeds(num_envs: int, seed: int) -> Integers:
    return np.arange(num_envs, dtype=np.int64) + 1000 * seed


def _require(holds: bool, guarantee: str) -> None:
    if not holds:
        raise ContractError(f"the environment breaks its contract: {guarantee}")
