"""Games played here and by a plain loop over PettingZoo's own, and what was recorded."""

import warnings
from collections import Counter

import numpy as np
from pettingzoo import AECEnv

from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.spaces import observation_converter
from remuda.envs.recorded import Wrapped
from remuda.envs.registry import make_env
from remuda.envs.scripted import room_for

NEVER_OVER = -1.0
"""Stands in a transition's place for what was seen after a termination, which nobody reads."""


def pettingzoo(name, **options):
    def make():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they import what is deprecated
            return make_env(f"pettingzoo:{name}", 1, api="aec", **options).copies[0]

    return make


class Recorded(AECEnv):
    """An AEC game, with the seed and the actions of each of its episodes."""

    def __init__(self, game):
        self.__dict__.update(game=game, episodes=[])

    def __getattr__(self, name):
        return getattr(self.game, name)

    def __setattr__(self, name, value):
        setattr(self.game, name, value)

    def reset(self, seed=None, options=None):
        self.episodes.append((seed, []))
        self.game.reset(seed=seed)

    def step(self, action):
        self.episodes[-1][1].append(action)
        self.game.step(action)

    def observe(self, agent):
        return self.game.observe(agent)

    def observation_space(self, agent):
        return self.game.observation_space(agent)

    def action_space(self, agent):
        return self.game.action_space(agent)


class PlayedAEC:
    """Copies of an AEC game, played by an actor, and again in a plain loop."""

    def __init__(self, make, shares=None):
        """`shares`: by agent, how much of what it learns from is the mean of all."""
        self.make, self.env = make, AECCopies(lambda: Recorded(make()), 3)
        self.shares = shares

    def begin(self):
        """Forget what was played until now, but for the episodes that have just begun."""
        for copy in self.env.copies:
            del copy.episodes[:-1]

    def plain(self):
        """What a loop over `last()` collects: (agent, seen, action, reward, over, seen after)."""
        found = Counter()
        for copy in self.env.copies:
            for seed, actions in copy.episodes:
                game, open_steps, actions = self.make(), {}, list(actions)
                game.reset(seed=seed)
                owed = dict.fromkeys(game.possible_agents, 0.0)
                for name in game.agent_iter():
                    dead = game.terminations[name] or game.truncations[name]
                    if not actions and not dead:
                        break
                    seen, reward, terminated, *_ = game.last()
                    reward = reward if self.shares is None else owed[name]
                    agent = game.possible_agents.index(name)
                    seen = seen["observation"] if isinstance(seen, dict) else seen
                    seen = observation_converter(game.observation_space(name)).flatten(seen)
                    if name in open_steps:
                        step = (*open_steps.pop(name), float(reward))
                        found[transition(*step, terminated, seen)] += 1
                    action = actions.pop(0) if actions else None
                    if not dead:
                        open_steps[name] = (agent, seen, action)
                    owed[name] = 0.0
                    game.step(action)
                    if self.shares is not None and not dead:
                        mean = sum(game.rewards.values()) / len(owed)
                        for other, share in zip(owed, self.shares, strict=True):
                            own = game.rewards.get(other, 0.0)
                            owed[other] += own + share * (mean - own)
        return found


class PlayedHere(Wrapped):
    """A game of this project, played by an actor, and again in a plain loop over its rules."""

    def __init__(self, make, shares=None):
        """`shares`: by agent, how much of what it learns from is the mean of its team."""
        self.make, self.events, self.began = make, [], False
        super().__init__(make())
        shares = np.zeros(self.num_agents) if shares is None else np.asarray(shares)
        teams = [spec.team for spec in self.agents]
        self.share = np.diag(1.0 - shares).astype(np.float32)
        for agent, team in enumerate(teams):
            for other in range(self.num_agents):
                if teams[other] == team:
                    self.share[other, agent] += shares[agent] / teams.count(team)
        self.env = self

    def begin(self):
        self.began = True

    def reset(self, seeds, mask):
        if not self.began:
            self.events.clear()
        self.events.append(("reset", seeds.copy(), mask.copy()))
        self.game.reset(seeds, mask)

    def begin_turn(self):
        self.events.append(("begin_turn",))
        self.game.begin_turn()

    def observe(self, agent, out):
        self.events.append(("observe", agent))
        self.game.observe(agent, out)

    def act(self, agent, actions):
        self.events.append(("act", agent, actions.copy()))
        self.game.act(agent, actions)

    def end_turn(self):
        self.events.append(("end_turn",))
        return self.game.end_turn()

    def plain(self):
        """As `PlayedAEC.plain`; who is given what is seen from what the game says so far."""
        game, found = self.make(), Counter()
        so_far = rules(game).rewards_so_far  # None: nothing is given before the end of a turn
        seen = [room_for(game, agent) for agent in range(game.num_agents)]
        nothing = np.zeros((game.num_envs, game.num_agents), np.float32)
        open_steps, before = {}, nothing
        in_turn = False
        for event, *rest in self.events:
            in_turn = event == "begin_turn" or (in_turn and event != "end_turn")
            if event == "reset":
                open_steps = {at: step for at, step in open_steps.items() if not rest[1][at[0]]}
                game.reset(*rest)
            elif event == "observe":
                (agent,) = rest
                game.observe(agent, seen[agent])
                # At the end of a turn it only looks at what those who ended saw last.
                acts = game.active[:, agent] & in_turn
                for e in np.flatnonzero(acts).tolist():
                    now = seen[agent][e].copy()
                    if (e, agent) in open_steps:
                        found[transition(agent, *open_steps[e, agent], False, now)] += 1
                    open_steps[e, agent] = [now, None, 0.0]
            elif event == "begin_turn":
                before = nothing
                game.begin_turn()
            elif event == "act":
                agent, actions = rest
                for (e, other), step in open_steps.items():
                    if other == agent and step[1] is None:
                        step[1] = actions[e]
                game.act(agent, actions)
            else:
                result = game.end_turn()
            if event in ("begin_turn", "act", "end_turn"):
                given = nothing if so_far is None else so_far @ self.share
                given = result.rewards @ self.share if event == "end_turn" else given
                for (e, agent), step in open_steps.items():
                    step[-1] += float((given - before)[e, agent])
                before = given
            if event == "end_turn":
                for e, agent in zip(*np.nonzero(result.terminated | result.truncated), strict=True):
                    game.observe(agent, seen[agent])
                    step = open_steps.pop((e, agent))
                    over = result.terminated[e, agent]
                    found[transition(agent, *step, over, seen[agent][e])] += 1
        return found


def rules(game):
    return rules(game.game) if isinstance(game, Wrapped) else game


def transition(agent, seen, action, reward, over, after):
    after = (NEVER_OVER,) if over else tuple(np.ravel(after).astype(np.float32).tolist())
    seen = tuple(np.ravel(seen).astype(np.float32).tolist())
    action = tuple(np.ravel(action).astype(int).tolist())
    return (int(agent), seen, action, round(float(reward), 3), bool(over), after)
