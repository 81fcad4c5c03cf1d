"""Bucket Brigade: neighbours on a ring of houses put out fires, each tempted to rest.

- `num_houses` (10) houses on a ring are each SAFE, BURNING or RUINED. Agent h mod num_agents owns
  house h. At the start of an episode each house burns with probability
  `prob_house_catches_fire`.
- Each night all agents act at once. An agent goes to a house, works there or rests, and shows a
  non-binding signal, 0 or 1: an action is [house, work, signal].
- Then the night proceeds:

      1. fires are put out: with w workers at it, a burning house becomes safe with probability
         1 - (1 - prob_solo_agent_extinguishes_fire)^w. With `continuous` suppression, the work
         adds up instead, by `suppression_per_worker`, until it reaches 1;
      2. a house that still burns is ruined (not with continuous suppression);
      3. fire spreads: each burning house, in order and including those lit in this pass, lights its
         left and then its right neighbour, if safe, with `prob_fire_spreads_to_neighbor`;
      4. each safe house catches fire with `prob_house_catches_fire`.

- Work costs `cost_to_work_one_night`, plus `distance_cost_alpha` times the distance in houses from
  the agent's home to its place of work; rest pays `reward_rest`. For each house that is safe now
  and was not after the previous night, an agent gets `reward_own_house_survives` or
  `reward_other_house_survives`; for each ruined house it loses `penalty_own_house_burns` or
  `penalty_other_house_burns`. Every agent gets `team_reward_house_survives` times the share of safe
  houses, and loses `team_penalty_house_burns` times the share of ruined ones. Before the first
  night all houses count as safe, so a fire put out in the first night pays nothing.
- An episode terminates after any night beyond the first `min_nights` if nothing burns. After
  `max_nights` (100) it is truncated.
- An agent observes all houses; the signal, the place and the last action of every agent; the
  scenario's twelve numbers; and which agent it is. With `scaled`, the default, a ruined house is
  -1, places are in 0..1 and the scenario's numbers are of order 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete

from remuda.envs.games import data
from remuda.envs.games.array_game import ArrayGame
from remuda.envs.games.options import require_number, require_one_of, require_whole, whole_numbers
from remuda.envs.games.randomness import seed_stream, uniform
from remuda.envs.games.rendering import agent_colour, agent_sprite, paste, sprites
from remuda.system.checkpoint.fitting import COUNT, FINITE_64, SHARE, Range, Table, require
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers, State, TurnResult

SAFE, BURNING, RUINED = range(3)
HOUSE, WORK, SIGNAL = range(3)  # the parts of an action
OBSERVED = 11  # agents observe a scenario's first 11 fields
FACTS = OBSERVED + 1
"""Numbers in an observation about the scenario: these fields and the number of agents."""
TOWARDS_ONE = np.array([1, 1, 1, 100, 100, 100, 100, 100, 100, 1, 20, 10], np.float32)
"""The divisors of these numbers if they are scaled."""

TEAM, WORKED = range(2)
"""Sums over an episode and all agents: the rewards, and the nights worked."""

Each = float | Sequence[float]  # one number for all agents, or one for each


@dataclass(frozen=True)
class Scenario:
    """The parameters of the rules."""

    prob_fire_spreads_to_neighbor: float
    prob_solo_agent_extinguishes_fire: float
    prob_house_catches_fire: float
    team_reward_house_survives: float = 100.0
    team_penalty_house_burns: float = 100.0
    reward_own_house_survives: Each = 1.0
    reward_other_house_survives: Each = 0.0
    penalty_own_house_burns: Each = 2.0
    penalty_other_house_burns: Each = 0.0
    cost_to_work_one_night: float = 0.5
    min_nights: int = 12
    reward_rest: float = 0.5
    num_houses: int = 10
    suppression: str = "bernoulli"
    suppression_per_worker: float = 0.0
    distance_cost_alpha: float = 0.0
    homes: Sequence[int] | None = None
    """Each agent's home, for distances. None: agent i's home is house i mod num_houses."""


SCENARIOS = {name: Scenario(**numbers) for name, numbers in data.load("bucket_brigade").items()}


class Rules(NamedTuple):
    """The parameters of a scenario for `num_agents` agents, for compiled functions."""

    spread: float
    solo: float
    spark: float
    team_reward: float
    team_penalty: float
    rest: float
    min_nights: int
    continuous: bool
    suppression: float
    work_cost: Array  # [num_agents, num_houses]: the cost of each agent's work at each house
    own_survives: Array  # [num_agents], like the next three
    other_survives: Array
    own_burns: Array
    other_burns: Array


class Draws(NamedTuple):
    """A night's random numbers, uniform in [0, 1), one for each possible event."""

    extinguish: Array  # [num_houses]
    spread: Array  # [num_houses, 2]: to the left and to the right
    spark: Array  # [num_houses]


class BucketBrigade(ArrayGame):
    """Copies of Bucket Brigade; see the rules at the top of this module.

    Its episode metrics are the reward of all agents per night, the share of nights that agents
    worked, the ruined houses at the end, and the number of nights.
    """

    episode_metrics = ("team_reward_per_night", "work_share", "ruined_houses", "nights")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        scenario: str = "default",
        num_agents: int = 4,
        max_nights: int = 100,
        scaled: bool = True,
        **changes: Any,
    ) -> None:
        """Set up one of `SCENARIOS`, with `changes` to its fields.

        With `scaled`, the numbers in observations are of order 1.
        """
        own = whole_numbers(num_agents=(num_agents, 1), max_nights=(max_nights, 1))
        require_one_of("scenario", scenario, SCENARIOS)
        for name in changes:
            require_one_of("a change of the scenario", name, asdict(SCENARIOS[scenario]))
        self.scenario = replace(SCENARIOS[scenario], **changes)
        options = {"scenario": scenario, **own, "scaled": scaled, **changes}
        self.rules = make_rules(self.scenario, num_agents)
        self._max_nights = max_nights
        houses = self.scenario.num_houses
        observed = list(asdict(self.scenario).values())[:OBSERVED]
        parameters: Floats = np.array([*map(np.mean, observed), num_agents], np.float32)
        if scaled:
            parameters /= TOWARDS_ONE
        size = houses + 5 * num_agents + FACTS
        self._scales = (-1.0, 1.0 / max(houses - 1, 1)) if scaled else (2.0, 1.0)
        bound = float(max(houses, np.abs(parameters).max()))
        space = Box(-1.0 if scaled else -bound, bound, (size,), np.float32)
        self._allocate(num_envs, options, space, [MultiDiscrete([houses, 2, 2])] * num_agents)
        self.turn_groups = (tuple(range(num_agents)),)
        self.houses: Array = np.zeros((num_envs, houses), np.int8)
        """[num_envs, num_houses]: SAFE, BURNING or RUINED."""
        self.progress: Array = np.zeros((num_envs, houses), np.float64)
        """[num_envs, num_houses]: how far each fire is put out, with continuous suppression."""
        self.actions: Integers = np.zeros((num_envs, num_agents, 3), np.int64)
        """[num_envs, num_agents, 3]: the last actions."""
        self._actions_of = [self.actions[:, agent] for agent in range(num_agents)]
        self._shared: Floats = np.zeros((num_envs, size - num_agents), np.float32)
        self._shared[:, -FACTS:] = parameters
        """[num_envs, size - num_agents]: the shared part of observations since the last night."""
        self._before: Array = np.zeros_like(self.houses)
        self._nights: Integers = np.zeros(num_envs, np.int64)
        self._sums = np.zeros((num_envs, 2), np.float64)
        self._draws = Draws(np.zeros(houses), np.zeros((houses, 2)), np.zeros(houses))

    def reset(self, seeds: Integers, mask: Bools) -> None:
        houses = self.houses, self.progress, self._before, self._nights
        sums = self._sums, self.actions, self.active
        _reset(*houses, *sums, self._streams, seeds, mask, self.rules.spark)
        _share(self.houses, self.actions, self._scales, self._shared)

    def begin_turn(self) -> None:
        """Do nothing."""

    def observe(self, agent: int, out: Array) -> None:
        _observe(self._shared, agent, out)

    def act(self, agent: int, actions: Integers) -> None:
        self._actions_of[agent][...] = actions

    def end_turn(self) -> TurnResult:
        houses = self.houses, self.progress, self._before, self._nights, self.actions
        state = self.active, self._streams, self._draws, self.rules
        ends = self._rewards, self._terminated, self._truncated
        _nights(*houses, *state, self._max_nights, *ends, self._sums, self._metrics)
        _share(self.houses, self.actions, self._scales, self._shared)
        return self._result

    def restore(self, state: State) -> None:
        super().restore(state)
        _share(self.houses, self.actions, self._scales, self._shared)

    def _world(self) -> Table:
        kinds = Range(SAFE, RUINED)
        return {
            "houses": (self.houses, kinds),
            "progress": (self.progress, SHARE),
            "before": (self._before, kinds),
            "actions": (self.actions, Range(0, max(self.scenario.num_houses, 2) - 1)),
            "nights": (self._nights, COUNT),
            "sums": (self._sums, FINITE_64),
            "streams": (self._streams, None),
            "active": (self.active, None),
        }

    def _check(self, state: State) -> None:
        choices = np.array([self.scenario.num_houses, 2, 2])
        fits = bool((state["actions"] < choices).all())
        require(state, "actions", fits, f"choices are below {choices.tolist()}")

    def render(self, env: int = 0) -> Array:
        """Draw one copy, the ring from above: [272, 272, 3] uint8."""
        return _picture(self.houses[env], self.actions[env])


def make_rules(scenario: Scenario, num_agents: int) -> Rules:
    """Return the rules of a scenario, or raise a ValueError that names an invalid field."""
    for name, value in asdict(scenario).items():
        if name.startswith("prob_"):
            require_number(name, value, 0.0, 1.0)
    require_whole("num_houses", scenario.num_houses, 1)
    require_whole("min_nights", scenario.min_nights, 0)
    require_one_of("suppression", scenario.suppression, ("bernoulli", "continuous"))
    require_number("suppression_per_worker", scenario.suppression_per_worker, 0.0)
    if scenario.homes is not None and len(scenario.homes) < num_agents:
        raise ValueError(f"homes has {len(scenario.homes)} houses for {num_agents} agents")
    distance = distances(scenario, num_agents)
    return Rules(
        spread=float(scenario.prob_fire_spreads_to_neighbor),
        solo=float(scenario.prob_solo_agent_extinguishes_fire),
        spark=float(scenario.prob_house_catches_fire),
        team_reward=float(scenario.team_reward_house_survives),
        team_penalty=float(scenario.team_penalty_house_burns),
        rest=float(scenario.reward_rest),
        min_nights=int(scenario.min_nights),
        continuous=scenario.suppression == "continuous",
        suppression=float(scenario.suppression_per_worker),
        work_cost=scenario.cost_to_work_one_night + scenario.distance_cost_alpha * distance,
        own_survives=_each("reward_own_house_survives", scenario, num_agents),
        other_survives=_each("reward_other_house_survives", scenario, num_agents),
        own_burns=_each("penalty_own_house_burns", scenario, num_agents),
        other_burns=_each("penalty_other_house_burns", scenario, num_agents),
    )


def distances(scenario: Scenario, num_agents: int) -> Integers:
    """Return the distances between agents' homes and houses: [num_agents, num_houses]."""
    houses = scenario.num_houses
    homes = np.array(scenario.homes or range(num_agents))[:num_agents] % houses
    clockwise = np.abs(homes[:, None] - np.arange(houses))
    found: Integers = np.minimum(clockwise, houses - clockwise)
    return found


def _each(name: str, scenario: Scenario, num_agents: int) -> Array:
    values = np.array(getattr(scenario, name), np.float64)
    if values.shape not in ((), (num_agents,)):
        raise ValueError(f"{name} is one number, or {num_agents}, one for each agent")
    return np.broadcast_to(values, num_agents).copy()


# The rules. Everything below runs compiled, over all copies.


@njit(cache=True)
def night(
    houses: Array,
    progress: Array,
    before: Array,
    actions: Integers,
    draws: Draws,
    rules: Rules,
    rewards: Floats,
) -> None:
    """Play one night of one copy, determined by the actions and random numbers.

    Changes `houses` and `progress` in place, writes `rewards`, [num_agents], and updates `before`,
    the houses after the previous night.
    """
    num_houses, num_agents = houses.size, actions.shape[0]
    for house in range(num_houses):
        if houses[house] != BURNING:
            continue
        workers = 0
        for agent in range(num_agents):
            workers += actions[agent, WORK] == 1 and actions[agent, HOUSE] == house
        if rules.continuous:
            progress[house] += workers * rules.suppression
            if progress[house] >= 1.0:
                houses[house], progress[house] = SAFE, 0.0
        elif draws.extinguish[house] < 1.0 - (1.0 - rules.solo) ** workers:
            houses[house] = SAFE
        else:
            houses[house] = RUINED
    if rules.continuous:  # otherwise nothing burns any more
        for house in range(num_houses):
            if houses[house] == BURNING:
                left, right = (house - 1) % num_houses, (house + 1) % num_houses
                if houses[left] == SAFE and draws.spread[house, 0] < rules.spread:
                    houses[left], progress[left] = BURNING, 0.0
                if houses[right] == SAFE and draws.spread[house, 1] < rules.spread:
                    houses[right], progress[right] = BURNING, 0.0
    for house in range(num_houses):
        if houses[house] == SAFE and draws.spark[house] < rules.spark:
            houses[house], progress[house] = BURNING, 0.0

    safe = saved = ruined = 0
    for house in range(num_houses):
        safe += houses[house] == SAFE
        saved += houses[house] == SAFE and before[house] != SAFE
        ruined += houses[house] == RUINED
    team = (rules.team_reward * safe - rules.team_penalty * ruined) / num_houses
    for agent in range(num_agents):
        own_saved = own_ruined = 0
        if saved or ruined:
            for house in range(agent, num_houses, num_agents):
                own_saved += houses[house] == SAFE and before[house] != SAFE
                own_ruined += houses[house] == RUINED
        reward = team
        if actions[agent, WORK] == 1:
            reward -= rules.work_cost[agent, actions[agent, HOUSE]]
        else:
            reward += rules.rest
        reward += rules.own_survives[agent] * own_saved
        reward += rules.other_survives[agent] * (saved - own_saved)
        reward -= rules.own_burns[agent] * own_ruined
        reward -= rules.other_burns[agent] * (ruined - own_ruined)
        rewards[agent] = reward
    before[:] = houses


@njit(cache=True)
def _nights(
    houses: Array,
    progress: Array,
    before: Array,
    nights: Integers,
    actions: Integers,
    active: Bools,
    streams: Array,
    draws: Draws,
    rules: Rules,
    max_nights: int,
    rewards: Floats,
    terminated: Bools,
    truncated: Bools,
    sums: Array,
    metrics: Array,
) -> None:
    num_agents = actions.shape[1]
    for env in range(houses.shape[0]):
        terminated[env] = truncated[env] = False
        if not active[env, 0]:
            rewards[env] = 0.0
            continue
        _draw(streams, env, draws, rules.continuous)
        night(houses[env], progress[env], before[env], actions[env], draws, rules, rewards[env])
        for agent in range(num_agents):
            sums[env, TEAM] += rewards[env, agent]
            sums[env, WORKED] += actions[env, agent, WORK]
        nothing_burns, ruined = True, 0
        for house in range(houses.shape[1]):
            nothing_burns &= houses[env, house] != BURNING
            ruined += houses[env, house] == RUINED
        nights[env] += 1
        if nights[env] > rules.min_nights and nothing_burns:
            terminated[env], active[env] = True, False
        elif nights[env] >= max_nights:
            truncated[env], active[env] = True, False
        if not active[env, 0]:
            metrics[0, env] = sums[env, TEAM] / nights[env]
            metrics[1, env] = sums[env, WORKED] / (nights[env] * num_agents)
            metrics[2, env], metrics[3, env] = ruined, nights[env]


@njit(cache=True)
def _draw(streams: Array, env: int, draws: Draws, spreads: bool) -> None:
    """Draw a number for each possible event; for spreading only if fire can spread."""
    for house in range(draws.spark.size):
        draws.extinguish[house] = uniform(streams, env)
        draws.spark[house] = uniform(streams, env)
    if spreads:
        for house in range(draws.spark.size):
            draws.spread[house, 0] = uniform(streams, env)
            draws.spread[house, 1] = uniform(streams, env)


@njit(cache=True)
def _reset(
    houses: Array,
    progress: Array,
    before: Array,
    nights: Integers,
    sums: Array,
    actions: Integers,
    active: Bools,
    streams: Array,
    seeds: Integers,
    mask: Bools,
    spark: float,
) -> None:
    for env in range(houses.shape[0]):
        if mask[env]:
            progress[env], before[env], nights[env], sums[env] = 0.0, SAFE, 0, 0.0
            actions[env], active[env] = 0, True
            seed_stream(streams, env, seeds[env])
            for house in range(houses.shape[1]):
                houses[env, house] = BURNING if uniform(streams, env) < spark else SAFE


@njit(cache=True)
def _share(houses: Array, actions: Integers, scales: tuple[float, float], out: Floats) -> None:
    """Write the shared part of observations: houses, signals, places and last actions."""
    num_houses, num_agents = houses.shape[1], actions.shape[1]
    ruined, place = scales
    signals = num_houses
    places = signals + num_agents
    last = places + num_agents
    for env in range(houses.shape[0]):
        row = out[env]
        for house in range(num_houses):
            state = houses[env, house]
            row[house] = ruined if state == RUINED else state
        for agent in range(num_agents):
            at = place * actions[env, agent, HOUSE]
            row[signals + agent] = actions[env, agent, SIGNAL]
            row[places + agent] = at
            row[last + 2 * agent] = at
            row[last + 2 * agent + 1] = actions[env, agent, WORK]


@njit(cache=True)
def _observe(shared: Floats, agent: int, out: Array) -> None:
    common, size = shared.shape[1], out.shape[1]
    for env in range(out.shape[0]):
        for i in range(common):
            out[env, i] = shared[env, i]
        for i in range(common, size):
            out[env, i] = i == common + agent


SIDE = 272  # pixels of an image
LAWN = (26, 30, 34)


def _picture(houses: Array, actions: Integers) -> Array:
    canvas: Array = np.full((SIDE, SIDE, 3), LAWN, np.uint8)
    painted = [_zoomed(each) for each in sprites("house", "fire", "ruin")]
    around = 2 * np.pi * np.arange(houses.size) / houses.size - np.pi / 2
    for house, angle in enumerate(around):
        at = 0.5 + 0.42 * np.cos(angle), 0.5 + 0.42 * np.sin(angle)
        paste(canvas, painted[houses[house]], *at)
    for house, angle in enumerate(around):
        here = np.flatnonzero(actions[:, HOUSE] == house)
        for i, agent in enumerate(here):
            # Side by side, on the inner side of the house; working agents are closer.
            near = 0.29 if actions[agent, WORK] else 0.2
            aside = angle + (i - (len(here) - 1) / 2) * 0.125 / near
            figure = _zoomed(agent_sprite(agent_colour(int(agent)), ground=LAWN))
            paste(canvas, figure, 0.5 + near * np.cos(aside), 0.5 + near * np.sin(aside))
    return canvas


def _zoomed(picture: Array) -> Array:
    bigger: Array = picture.repeat(2, axis=0).repeat(2, axis=1)
    return bigger
