"""MPE in JaxMARL and in PettingZoo (MPE2): whether the two are the same game.

python benchmarks/jax_same_game.py --record

Two comparisons for spread and speaker-listener. The first starts both libraries in equal states,
plays equal random actions, and reports the largest differences of observations, rewards and
positions, after one turn and at the end of an episode; in every second episode agents start close
together, so that they collide. The second trains policies in JaxMARL's world and evaluates them in
both worlds, greedily. With --record each world is written when it is over, and the same command
leaves out those that are recorded.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from recording import Results, error_of, options_of
from seeds import Run, each_run

import remuda
from remuda.envs.adapters.jax_library import import_jax, make_world
from remuda.envs.registry import make_env
from remuda.envs.scripted import room_for
from remuda.ui.terminal.live import PlainView

TURNS = 25  # of an episode of MPE2
CLOSE = 0.25  # factor of the positions of agents that start close together
EPISODES = 2000  # of each evaluation
COPIES = 100
JAXMARL, SHORTER, PETTINGZOO = "JaxMARL", "JaxMARL, `max_steps 24`", "PettingZoo"


@dataclass(frozen=True)
class World:
    """A world in both libraries."""

    jaxmarl: str
    mpe2: str

    def places(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return the environments in which policies are evaluated, with their options."""
        own = f"jaxmarl:{self.jaxmarl}"
        return {
            JAXMARL: (own, {}),
            SHORTER: (own, {"max_steps": TURNS - 1}),
            PETTINGZOO: (f"pettingzoo:mpe2.{self.mpe2}", {}),
        }


WORLDS = {
    "spread": World("MPE_simple_spread_v3", "simple_spread_v3"),
    "speaker_listener": World("MPE_simple_speaker_listener_v4", "simple_speaker_listener_v4"),
}


class Twins:
    """One copy of a world in each library."""

    def __init__(self, world: World) -> None:
        jax = import_jax()
        self.jax, self.one = jax, make_world(world.jaxmarl, {})
        self._reset, self._step = jax.jit(self.one.reset), jax.jit(self.one.step_env)
        self.other = importlib.import_module(f"mpe2.{world.mpe2}").parallel_env()
        self.names: list[str] = list(self.one.agents)
        spaces = (self.other.possible_agents, [self.other.action_space(a) for a in self.names])
        assert spaces[0] == self.names, "the agents or their order differ"
        self.choices = [int(space.n) for space in spaces[1]]
        assert self.choices == [int(self.one.action_space(a).n) for a in self.names]

    def reset(self, seed: int, close: bool) -> None:
        """Start both in the state that JaxMARL draws."""
        self.other.reset(seed=seed)
        self.key, own = self.jax.random.split(self.jax.random.PRNGKey(seed))
        self.observations, self.state = self._reset(own)
        if close:
            count = len(self.names)
            places = self.state.p_pos.at[:count].multiply(CLOSE)
            self.state = self.state.replace(p_pos=places)
            self.observations = self.one.get_obs(self.state)
        self.copy_state()

    def copy_state(self) -> None:
        """Give MPE2's world the state of JaxMARL's."""
        world, state = self.other.unwrapped.world, self.state
        for i, entity in enumerate(world.entities):
            entity.state.p_pos = np.asarray(state.p_pos[i], np.float64)
            entity.state.p_vel = np.asarray(state.p_vel[i], np.float64)
        for i, agent in enumerate(world.agents):
            agent.state.c = np.asarray(state.c[i], np.float64)
        if state.goal is not None:
            world.agents[0].goal_b = world.landmarks[int(state.goal)]

    def step(self, actions: Mapping[str, int]) -> Differences:
        """Step both with equal actions, and return how far they are apart."""
        self.key, own = self.jax.random.split(self.key)
        chosen = {name: np.int32(action) for name, action in actions.items()}
        self.observations, self.state, rewards, *_ = self._step(own, self.state, chosen)
        found = self.other.step(dict(actions))
        return Differences(
            self.observed(found[0]),
            max(abs(float(rewards[name]) - float(found[1][name])) for name in self.names),
            self.places(),
        )

    def observed(self, others: Mapping[str, Any]) -> float:
        pairs = ((np.asarray(self.observations[name]), others[name]) for name in self.names)
        return max(float(np.abs(one - other).max()) for one, other in pairs)

    def now(self) -> float:
        """Return the largest difference of the observations in the present state."""
        found = {name: self.other.unwrapped.observe(name) for name in self.names}
        return self.observed(found)

    def places(self) -> float:
        entities = self.other.unwrapped.world.entities
        others = np.stack([entity.state.p_pos for entity in entities])
        return float(np.abs(np.asarray(self.state.p_pos) - others).max())

    def touching(self) -> bool:
        """Return whether two colliding agents overlap."""
        agents = [each for each in self.other.unwrapped.world.agents if each.collide]
        return any(
            float(np.linalg.norm(a.state.p_pos - b.state.p_pos)) < a.size + b.size
            for i, a in enumerate(agents)
            for b in agents[:i]
        )


@dataclass
class Differences:
    """The largest absolute differences between the two libraries."""

    observations: float = 0.0
    rewards: float = 0.0
    places: float = 0.0

    def widen(self, other: Differences) -> None:
        self.observations = max(self.observations, other.observations)
        self.rewards = max(self.rewards, other.rewards)
        self.places = max(self.places, other.places)


@dataclass
class Steps:
    """What equal random actions show."""

    start: float = 0.0  # the largest difference of the first observations
    turn: Differences = field(default_factory=Differences)  # after a turn from equal states
    apart: list[float] = field(default_factory=list)  # positions at the end of whole episodes
    touched: int = 0
    turns: int = 0


def compare_steps(world: World, episodes: int) -> Steps:
    """Play equal random actions in both libraries."""
    twins, found = Twins(world), Steps()
    for episode in range(episodes):
        rng = np.random.default_rng(episode)
        script = rng.integers(0, twins.choices, (TURNS, len(twins.choices))).tolist()
        for in_step in (True, False):
            twins.reset(episode, close=episode % 2 == 1)
            found.start = max(found.start, twins.now())
            for row in script:
                found.touched += in_step and twins.touching()
                differences = twins.step(dict(zip(twins.names, row, strict=True)))
                if in_step:
                    found.turn.widen(differences)
                    found.turns += 1
                    twins.copy_state()
            if not in_step:
                found.apart.append(twins.places())
    return found


def returns(run: remuda.Run, game: str, options: Mapping[str, Any], episodes: int) -> Run:
    """Play a run's policies greedily in an environment; return their return and the turns."""
    env = make_env(game, COPIES, **options)
    found: list[float] = []
    lengths: set[int] = set()
    every, rng = np.ones(COPIES, np.bool_), np.random.default_rng(1)
    while len(found) < episodes:
        env.reset(rng.integers(0, 2**31, COPIES), every)
        earned, turns = np.zeros((COPIES, env.num_agents)), 0
        while env.active.any():
            env.begin_turn()
            for i, agent in enumerate(env.agents):
                observations = room_for(env, i)
                env.observe(i, observations)
                env.act(i, run[agent.name].act(observations))
            result = env.end_turn()
            earned += result.rewards
            turns += 1
        assert result.truncated.all(), "an episode that no time limit cut off"
        lengths.add(turns)
        found += earned.mean(1).tolist()
    env.close()
    (turns,) = lengths
    return {"return": float(np.mean(found)), "error": error_of(found), "turns": turns}


def measure(world: World, seed: int, turns: int, episodes: int) -> Run:
    """Compare steps, then train in JaxMARL's world and evaluate in both."""
    begun = time.perf_counter()
    steps = compare_steps(world, episodes)
    run: Run = {
        "start": steps.start,
        "observations": steps.turn.observations,
        "rewards": steps.turn.rewards,
        "places": steps.turn.places,
        "apart": float(np.median(steps.apart)),
        "most apart": max(steps.apart),
        "compared": steps.turns,
        "touched": steps.touched,
    }
    with tempfile.TemporaryDirectory() as home:
        result = remuda.train(
            f"jaxmarl:{world.jaxmarl}",
            seed=seed,
            env={"num_envs": 64},
            policy={"algorithm": "ppo", "network": {"hidden": [64, 64]}},
            run={
                "turns": turns,
                "directory": str(Path(home) / "run"),
                "evaluate_episodes": 0,
                "calibrate": 0.0,
            },
            checkpoint={"evaluate_episodes": 0},
            view=PlainView(),
        )
        policies = remuda.load(result.directory)
        for place, (game, options) in world.places().items():
            found = returns(policies, game, options, EPISODES)
            run |= {f"{place}: {name}": value for name, value in found.items()}
    return run | {"return": run[f"{JAXMARL}: return"], "seconds": time.perf_counter() - begun}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seeds", type=int, nargs=1, default=[1], help="of training")
    add("--turns", type=int, default=2_000_000, help="of training, of all copies together")
    add("--episodes", type=int, default=200, help="of random actions, played in both libraries")
    options = options_of(parser)
    results, played = Results("jax_same_game"), Results("jax_same_game.returns")
    libraries = {
        name: lambda seed, world=world: measure(world, seed, options.turns, options.episodes)
        for name, world in WORLDS.items()
    }
    what = {"turns": options.turns, "episodes": options.episodes}
    for (name, _), run in each_run(results, options, libraries, what).items():
        results.row(
            {
                "world": name,
                "turns compared": run["compared"],
                "in a collision": run["touched"],
                "first observations": run["start"],
                "observations": run["observations"],
                "rewards": run["rewards"],
                "positions": run["places"],
                "positions after 25 turns, median": run["apart"],
                "most": run["most apart"],
            }
        )
        most = max(run["start"], run["observations"], run["rewards"])
        results.bar(f"{name}: observations and rewards from equal states", most, most=1e-4)
        for place in WORLDS[name].places():
            earned, turns = run[f"{place}: return"], run[f"{place}: turns"]
            played.row(
                {
                    "world": f"{name}, {place}",
                    "turns": turns,
                    "return of an agent": earned,
                    "±": run[f"{place}: error"],
                    "return a turn": earned / turns,
                }
            )
        errors = np.hypot(run[f"{SHORTER}: error"], run[f"{PETTINGZOO}: error"])
        apart = abs(run[f"{SHORTER}: return"] - run[f"{PETTINGZOO}: return"]) / errors
        what_is = f"{name}, {TURNS} turns in both: difference of returns, in its standard errors"
        played.bar(what_is, float(apart), most=3)
    results.finish(options)
    played.finish(options)


if __name__ == "__main__":
    main()
