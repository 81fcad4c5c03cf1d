"""The worlds of `worlds.py`: how policies are trained in each, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.config import load_config, overlay, preset_tree

QUICK = 0.02
"""The share of a world's turns in a quick run."""


@dataclass(frozen=True)
class World:
    """A world, how policies are trained there, and what is known of it.

    Attributes:
        game: as Remuda names it.
        turns: of all copies together.
        copies: of the world.
        options: of the world.
        team: whether the returns of all agents are added up; else their mean counts.
        least: what the mean over seeds of greedy returns is to reach; None: there is no such bar.
        known: what is known of the world, in words.
        preset: what `remuda train --preset` names for it; empty: PPO's defaults.
        episodes: that each is judged by.
        peers: whether the other library plays it.
        alone: whether no two agents are alike, so that both ways of the other library are one.
        scripted: by agent, who plays it without learning, as `fleeing:flee`.
        counted: how the names of agents begin whose returns count; empty: all do.
        theirs: what overrides the tree for the other library, where it comes to little with ours.
        alike: whether all agents that learn see and do the same, so that one policy may play them.
        kinds: else, where some are alike, by kind the agents that one policy may play. Those whose
            returns count and the others are two sides, which the libraries play across.
        continuous: whether actions are, so that PPO alone learns there.
        quick: the share of the turns after which it is better than play at random.
    """

    game: str
    turns: int
    copies: int = 16
    options: Mapping[str, Any] = field(default_factory=dict)
    team: bool = False
    least: float | None = None
    known: str = ""
    preset: str = ""
    episodes: int = 200
    peers: bool = True
    alone: bool = False
    scripted: Mapping[str, str] = field(default_factory=dict)
    theirs: Mapping[str, Any] = field(default_factory=dict)
    counted: str = ""
    alike: bool = False
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    continuous: bool = False
    quick: float = QUICK

    def settings(self, defaults: str | None = None) -> dict[str, Any]:
        """The whole tree; with `defaults` nothing of the policy is chosen but this algorithm."""
        given: dict[str, Any] = {
            "env": {
                "num_envs": self.copies,
                "options": dict(self.options),
                "scripted": dict(self.scripted),
            }
        }
        if defaults:
            return overlay(defaults_of(defaults), given)
        chosen = preset_tree([self.preset] if self.preset else [])
        return overlay(overlay(COMMON, chosen), given)

    def hyperparameters(self, defaults: str | None) -> dict[str, Any]:
        """PPO's, as the other library calls them."""
        tree = self.settings(defaults)
        if not defaults:
            tree = overlay(tree, self.theirs)
        policy = load_config(tree | {"game": self.game}).policy
        return {
            "hidden": policy.network.hidden,
            "shared": policy.network.serves_both,
            "activation": policy.network.activation,
            "learning_rate": policy.learning_rate,
            "discount": policy.discount,
            "rollout": policy.ppo.rollout_length,
            "epochs": policy.ppo.epochs,
            "minibatches": policy.ppo.minibatches,
            "entropy_cost": policy.ppo.entropy_cost,
            "gae_lambda": policy.ppo.gae_lambda,
            "max_grad_norm": policy.max_grad_norm,
            "normalise_observations": policy.ppo.normalise_observations,
        }


def defaults_of(algorithm: str) -> dict[str, Any]:
    """Return a tree with a policy's defaults except its algorithm."""
    return {"policy": {"algorithm": algorithm}}


COMMON = defaults_of("ppo")
"""The settings of worlds without a preset."""
# The other library, which does not normalise values, comes to -1,000 without it.
PENDULUM = {
    "policy": {
        "discount": 0.9,
        "ppo": {"entropy_cost": 0.0, "epochs": 10},
    }
}
WORLDS: dict[str, World] = {
    "spread": World(
        "pettingzoo:mpe2.simple_spread_v3",
        turns=3_000_000,
        copies=64,
        options={"N": 3, "local_ratio": 0.5, "max_cycles": 25},
        least=-16.0,
        known="greedy assignment -8.4",
        alike=True,
    ),
    "speaker": World(
        "pettingzoo:mpe2.simple_speaker_listener_v4",
        turns=3_000_000,
        copies=64,
        options={"max_cycles": 25},
        least=-15.0,
        known="published IPPO -13.1 after 20 M (an older version)",
        preset="mpe",
        alone=True,
    ),
    "tag": World(
        "pettingzoo:mpe2.simple_tag_v3",
        turns=1_000_000,
        copies=64,
        options={"max_cycles": 25},
        known="a prey that flees, by hand",
        scripted={"agent_0": "fleeing:flee"},
        counted="adversary",
        alike=True,
    ),
    "tag_both": World(
        "pettingzoo:mpe2.simple_tag_v3",
        turns=1_000_000,
        copies=64,
        options={"max_cycles": 25},
        known="both learn: what adversaries earn depends on their prey",
        counted="adversary",
        kinds={
            "adversaries": ("adversary_0", "adversary_1", "adversary_2"),
            "prey": ("agent_0",),
        },
    ),
    "lbf_coop": World(
        "lbf:Foraging-8x8-2p-2f-coop-v3",
        turns=4_000_000,
        copies=32,
        team=True,
        least=0.95,
        known="1.0; published IPPO 1.00",
        alike=True,
    ),
    "lbf_10x10": World(
        "lbf:Foraging-10x10-3p-3f-v3",
        turns=8_000_000,
        copies=32,
        team=True,
        least=0.9,
        known="published IPPO .98, IQL .93",
        alike=True,
    ),
    "rware": World(
        "rware:rware-tiny-4ag-v2",
        turns=4_000_000,
        team=True,
        known="published IPPO 31.8 at 40 M",
        episodes=32,
        alike=True,
    ),
    "pursuit": World(
        "pettingzoo:sisl/pursuit_v5",
        turns=300_000,
        copies=8,
        options={"shared_reward": False},  # each earns its own: it adds up to the same
        team=True,
        least=80.0,
        known="users report 82 to 84 (v4)",
        preset="pursuit",
        episodes=64,  # of 16 the mean differs by 30 from try to try
        alike=True,
    ),
    "multiwalker": World(
        "pettingzoo:sisl/multiwalker_v9",
        turns=1_000_000,
        copies=8,
        episodes=32,
        alike=True,
        continuous=True,
    ),
    "pendulum": World(
        "gymnasium:Pendulum-v1",
        turns=300_000,
        copies=8,
        known="near -150 where it is solved",
        theirs=PENDULUM,
        alone=True,
        continuous=True,
        quick=0.2,
    ),
}
ONE_FOR_ALL: dict[str, Any] = {"population": {"policies": 1, "matchmaker": "self_play"}}


def sharing(world: World) -> dict[str, Any]:
    """A tree by which one policy plays all agents that are alike."""
    if not world.kinds:
        return ONE_FOR_ALL
    teams = {
        kind: {"policies": [kind], "agents": list(agents)} for kind, agents in world.kinds.items()
    }
    policies = list(world.kinds)
    return {"population": {"policies": policies, "matchmaker": "teams", "teams": teams}}


def kind_of(world: World) -> str:
    """The kind whose returns count; empty: there is one alone."""
    counted = (kind for kind, agents in world.kinds.items() if agents[0].startswith(world.counted))
    return next(counted, "")
