"""Whose a reward is: what lies between two decisions of an agent belongs to the first of them.

Each test plays a game with the actor, plays what it did again in a plain loop, and compares the
transitions in the rings with those of the loop, number by number.
"""

from collections import Counter

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv

from actor.played_games import PlayedAEC, PlayedHere, pettingzoo, transition
from assembled import assemble
from remuda.actor.role import ActorRole
from remuda.config import load_config
from remuda.envs.pettingzoo_export import AECGame
from remuda.envs.registry import make_env
from remuda.population.roster import policy_names
from remuda.population.specs import policy_specs
from remuda.runtime.layout import Layout
from ring_steps import steps_in


class GivesToOthers(AECEnv):
    """Each act gives something to everybody, in an order that `_next` chooses.

    An agent sees who it is, how many acts there were, and the sum of them.
    """

    metadata = {"name": "gives_to_others"}  # noqa: RUF012
    possible_agents = ("a", "b", "c")
    acts = 11
    """In an episode; even episodes terminate, odd ones are cut off."""

    def observation_space(self, agent):
        return spaces.Box(-1000, 1000, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.random = np.random.default_rng(seed)
        self.terminates = seed % 2 == 0
        self.count = self.total = 0
        for name, value in (
            ("rewards", 0.0),
            ("_cumulative_rewards", 0.0),
            ("terminations", False),
            ("truncations", False),
        ):
            setattr(self, name, dict.fromkeys(self.agents, value))
        self.infos = {name: {} for name in self.agents}
        self.agent_selection = self.agents[0]

    def observe(self, agent):
        number = self.possible_agents.index(agent)
        return np.array([number, self.count, self.total], np.float32)

    def step(self, action):
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[name] = 0.0
        self._clear_rewards()
        self.count += 1
        self.total += int(action)
        for other in self.agents:
            # No two sums have these numbers in common; they, and means of three, are exact floats.
            self.rewards[other] = 3 * float(self.random.integers(1, 2**12)) / 8
        self.ends(name)
        self._accumulate_rewards()
        self.agent_selection = self._next(name)
        self._deads_step_first()

    def live(self):
        return [n for n in self.agents if not (self.terminations[n] or self.truncations[n])]

    def ends(self, name):
        if self.count >= self.acts:
            ended = self.terminations if self.terminates else self.truncations
            ended.update(dict.fromkeys(self.live(), True))

    def _next(self, name):
        live = self.live()
        if not live:
            return self.agents[0]
        following = self.possible_agents.index(name)
        while True:
            following = (following + 1) % len(self.possible_agents)
            if self.possible_agents[following] in live:
                return self.possible_agents[following]


class ActsInAnyOrder(GivesToOthers):
    """Who acts next is drawn; it may be the same agent again."""

    acts = 17

    def _next(self, name):
        live = self.live()
        return live[self.random.integers(len(live))] if live else self.agents[0]


class FallsOut(GivesToOthers):
    """Agents end one by one, some by termination and some cut off, on others' acts as well."""

    acts = 14

    def ends(self, name):
        if self.count % 4 == 0 and len(self.live()) > 1:
            ended = self.terminations if self.random.random() < 0.5 else self.truncations
            ended[self.live()[self.random.integers(len(self.live()))]] = True
        super().ends(name)


class DiesLater(FallsOut):
    """Who has ended waits for its turn to be stepped through, and is given things until then."""

    def _next(self, name):
        following = self.agents.index(name) + 1
        return self.agents[following % len(self.agents)]

    def _deads_step_first(self):
        pass

    def step(self, action):
        name = self.agent_selection
        if not (self.terminations[name] or self.truncations[name]):
            super().step(action)
            return
        following = self._next(name)
        self._was_dead_step(action)
        if self.agents:
            self.agent_selection = following


def written(experience, agents, num_envs):
    """What stands in the rings, as `PlayedAEC.plain` has it."""
    found = Counter()
    for number, (name, one) in enumerate(experience.items()):
        for ring in one.rings:
            for step in steps_in(ring):
                agent = step.stream // num_envs if agents is None else agents.index(name)
                arrays = (ring.shared[name] for name in ("actions", "rewards", "discounts"))
                action, reward, discount = (array[step.slot, step.t] for array in arrays)
                over = discount == 0.0
                found[transition(agent, step.seen, action, reward, over, step.after)] += 1
        assert number < 8
    return found


def play(played, seats, algorithm, segment_length, turns=70, shares=(), apart=False, **env):
    """Play so many turns; returns what is in the rings, and the returns of the episodes.

    With `apart` it returns what is in the rings of each policy instead.
    """
    experience = {"segment_length": segment_length, "capacity": 6000, "learning_starts": 6000}
    policy = {
        "algorithm": algorithm,
        "network": {"hidden": (4,)},
        "experience": experience | {"on_full": "overwrite"},
    }
    tree = {"policy": policy, "env": {"num_envs": 3} | env}
    if algorithm == "ppo":
        tree["policy"]["ppo"] = {"rollout_length": 1000}
        del experience["capacity"], experience["learning_starts"]
    if seats == "dealt":
        tree["population"] = {"policies": 3, "matchmaker": "random"}
    names = policy_names(load_config(tree), played.env.agents)
    own = {name: {"share_rewards": share} for name, share in zip(names, shares, strict=False)}
    config = load_config(tree | {"policies": own})
    specs = policy_specs(config, played.env.agents)
    layout = Layout((3,), (tuple(range(len(specs))),), ("cpu",) * len(specs))

    class Role(ActorRole):
        def make_env(self, begins=""):
            return played.env

    parts = assemble(config, specs, layout, actor_role=Role, agents=played.env.agents)
    actor = parts.roles()[0].build()
    played.begin()
    returns = []
    actor.on_episode = lambda copy, earned, _: returns.append(earned.tolist())
    for _ in range(turns):
        actor.turn()
    names = None if seats == "dealt" else [spec.name for spec in played.env.agents]
    if apart:
        return {name: written({name: one}, names, 3) for name, one in parts.experience.items()}
    return written(parts.experience, names, 3), returns


def compare(played, seats, algorithm, segment_length, **how):
    found, returns = play(played, seats, algorithm, segment_length, **how)
    expected = played.plain()
    assert found.total() > 100
    assert found == expected, differences(found, expected)
    return returns


def differences(found, expected):
    return f"only written: {list((found - expected).items())[:3]}, only in the loop: " + str(
        list((expected - found).items())[:3]
    )


SEATS = pytest.mark.parametrize(
    ("seats", "algorithm", "segment_length"),
    [
        ("fixed", "dqn", 1),
        ("dealt", "ppo", 50),
        pytest.param("fixed", "ppo", 3, marks=pytest.mark.slow),
        pytest.param("dealt", "dqn", 2, marks=pytest.mark.slow),
    ],
)


@SEATS
@pytest.mark.parametrize("game", [GivesToOthers, ActsInAnyOrder, FallsOut, DiesLater])
def test_transitions_of_an_aec_game_are_those_of_a_plain_loop(
    game, seats, algorithm, segment_length
):
    compare(PlayedAEC(game), seats, algorithm, segment_length)


@pytest.mark.slow_cases(
    "classic/connect_four-v3-options0-fixed", "classic/tictactoe-v3-options1-fixed"
)
@pytest.mark.parametrize("seats", ["fixed", pytest.param("dealt", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("classic/connect_four-v3", {}),
        ("classic/tictactoe-v3", {}),
        ("classic/rps-v2", {"max_cycles": 7}),
        ("mpe2.simple_spread_v3", {"max_cycles": 6}),
    ],
)
def test_transitions_of_pettingzoos_own_games_are_those_of_a_plain_loop(name, options, seats):
    compare(PlayedAEC(pettingzoo(name, **options)), seats, "ppo", 3)


@pytest.mark.slow_cases(
    "bucket_brigade-options5-0.0-dealt-ppo-50",
    "bucket_brigade-options5-0.0-fixed-dqn-1",
    "cleanup-options2-0.0-dealt-ppo-50",
    "cleanup-options2-0.0-fixed-dqn-1",
)
@SEATS
@pytest.mark.parametrize(
    ("name", "options", "share"),
    [
        ("treasure_hunt", {"num_agents": 3, "height": 7, "width": 7, "max_turns": 9}, 0.0),
        ("treasure_hunt", {"num_agents": 3, "height": 7, "width": 7, "max_turns": 9}, 0.5),
        ("cleanup", {"num_agents": 5, "max_turns": 9}, 0.0),
        ("tag", {"num_agents": 3, "height": 5, "width": 5}, 1.0),
        ("connect_four", {}, 0.0),
        ("bucket_brigade", {}, 0.0),
        ("kuhn_poker", {}, 0.0),
        ("leduc_poker", {}, 0.0),
    ],
)
def test_transitions_of_games_here_are_those_of_a_plain_loop(
    name, options, share, seats, algorithm, segment_length
):
    def make():
        return make_env(name, 3, **options)

    if name in ("bucket_brigade", "connect_four", "kuhn_poker", "leduc_poker"):
        algorithm = "ppo"  # the others choose one thing at a time, from all there is
    shares = [share] * make().num_agents
    compare(PlayedHere(make, shares), seats, algorithm, segment_length, shares=shares)


@pytest.mark.parametrize("game", [GivesToOthers, ActsInAnyOrder])
@pytest.mark.parametrize(("seats", "shares"), [("fixed", (0.0, 0.5, 1.0)), ("dealt", (0.5,) * 3)])
def test_shares_of_what_others_are_given_between_two_acts_belong_to_the_first(game, seats, shares):
    compare(PlayedAEC(game, shares), seats, "ppo", 3, shares=shares)


@pytest.mark.parametrize("observe_together", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [("tag", {"num_agents": 4, "height": 5, "width": 5}), ("bucket_brigade", {})],
)
def test_each_policy_learns_from_the_share_that_is_its_own(name, options, observe_together):
    def make():
        return make_env(name, 3, **options)

    shares = [0.0, 0.25, 0.5, 1.0]
    played = PlayedHere(make, shares)
    returns = compare(played, "fixed", "ppo", 4, shares=shares, observe_together=observe_together)
    assert len(returns) == 0 or np.isfinite(returns).all()


@pytest.mark.parametrize("name", ["tag", "treasure_hunt"])
def test_who_is_dealt_a_seat_brings_its_share_to_it(name):
    """Nothing is trained, so the same is played whatever the shares are."""

    def played(shares):
        room = PlayedHere(lambda: make_env(name, 3, num_agents=3, height=5, width=5, max_turns=9))
        return play(room, "dealt", "ppo", 4, shares=shares, apart=True)

    shares = {"policy_0": 0.0, "policy_1": 1.0, "policy_2": 0.5}
    found = played(list(shares.values()))
    alike = {share: played([share] * 3) for share in shares.values()}
    for policy, share in shares.items():
        assert found[policy].total() > 30
        assert found[policy] == alike[share][policy]
    assert found["policy_1"] != alike[0.0]["policy_1"]
    assert found["policy_2"] != alike[1.0]["policy_2"]


@pytest.mark.parametrize("seats", ["fixed", "dealt"])
def test_who_decides_at_the_start_of_a_turn_owns_all_of_it(seats):
    """With `env.observe_together` nobody is given anything between observing and acting."""

    def make():
        return make_env("tag", 3, height=5, width=5)

    shares = [1.0] * make().num_agents
    compare(PlayedHere(make, shares), seats, "ppo", 4, shares=shares, observe_together=True)


def test_returns_are_sums_of_all_that_was_given():
    """What came before an agent's first decision is in its return, though no decision's own."""
    played = PlayedAEC(GivesToOthers)
    returns = compare(played, "fixed", "dqn", 3)
    totals = []
    for copy in played.env.copies:
        for seed, actions in copy.episodes[:-1]:
            game, given = GivesToOthers(), dict.fromkeys(GivesToOthers.possible_agents, 0.0)
            game.reset(seed=seed)
            for action in actions:
                game.step(action)
                for name in game.agents:
                    given[name] += game.rewards[name]
            totals.append(list(given.values()))
    assert sorted(returns) == sorted(totals)


@pytest.mark.slow
def test_an_exported_game_gives_rewards_when_they_come():
    """A plain loop over `last()` of a game here collects what a policy here learns from."""

    def make():
        return make_env("cleanup", 1, num_agents=5, max_turns=9)

    inner = PlayedHere(make)
    game = AECGame(inner)
    game.reset(seed=3)
    random, found, open_steps = np.random.default_rng(0), Counter(), {}
    for name in game.agent_iter():
        seen, reward, terminated, truncated, _ = game.last()
        if name in open_steps:
            found[transition(*open_steps[name], reward, terminated, seen)] += 1
        action = None if terminated or truncated else int(random.choice([0, 1, 2, 3, 5, 5, 5]))
        open_steps[name] = (game.possible_agents.index(name), seen, action)
        game.step(action)
    expected = inner.plain()
    assert any(reward < 0 for _, _, _, reward, _, _ in expected)
    assert found == expected, differences(found, expected)
