"""Several levels of oracles at once, each against all below it, fixed or still learning.

McAleer et al. 2020, "Pipeline PSRO: A scalable approach for finding approximate Nash equilibria in
large games", algorithm 2. Level n + 1 begins before level n is done. Training is cut into *slices*,
as many for each level as levels train at once: a slice is one ordinary run, whose policies are the
oracles of all active levels of both players, as one stack. At its end the lowest level that has had
all of its slices becomes fixed, the others go on in the next slice with their weights and moments,
and a new level begins on top.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.callbacks import ActiveRun, Callback
from remuda.config import Config, load_config, overlay
from remuda.coordinator.metrics import View
from remuda.coordinator.run_directory import RunDirectory
from remuda.crossplay import Player
from remuda.double_oracle.level_matchmaker import taught
from remuda.double_oracle.oracles import candidate_name
from remuda.double_oracle.record import Record
from remuda.double_oracle.trained_setup import TOLERANCE, TrainedSetup
from remuda.envs.registry import RANDOM
from remuda.exploiting.target import agents_of
from remuda.exploiting.training import NUM_ENVS, Annealing, ExploiterSettings, Headed, anneals
from remuda.policies.spec import kinds_of
from remuda.result import Result
from remuda.saved import SavedPolicies
from remuda.streams import stream
from remuda.training import train
from remuda.warm_start import GREEDY

Numbers = npt.NDArray[np.float64]
MATCHMAKER = "remuda.double_oracle.level_matchmaker:LevelMatchmaker"


@dataclass(frozen=True)
class Fixed:
    """The policies that became fixed, of one player."""

    members: tuple[str, ...] = ()
    """As `population.members_from` names them, but that their runs are relative to the record's
    directory."""

    @property
    def names(self) -> list[str]:
        """What a run calls them; the first plays at random, and is scripted."""
        named = [text.removesuffix(GREEDY).partition(":") for text in self.members]
        return [RANDOM, *(f"{run}-{policy}" for run, _, policy in named)]


class Pipeline:
    """The slices of a record, and the next ones.

    A slice that was trained is a line of the record, and its run's directory is kept, for those who
    go on with its weights or play against them. One without a line was under way when its process
    ended: what it left is taken away, and it is trained anew.
    """

    def __init__(
        self,
        setup: TrainedSetup,
        record: Record,
        view: View,
        most: int,
        clock: Callable[[], Mapping[str, float]],
    ) -> None:
        """Begin with no slice; `take` tells of those that the record knows.

        Args:
            setup: what is asked.
            record: where slices are kept.
            view: where training is watched.
            most: levels that there will be at most.
            clock: what each line of the record ends with.
        """
        self._setup, self._record, self._view = setup, record, view
        self._most, self._clock = most, clock
        self._spans: list[tuple[int, int]] = []
        """By slice, the first level that trained in it, and the last."""

    def follows(self, line: Mapping[str, Any], number: int) -> bool:
        """Whether a line of a slice is the next, while so many levels are fixed."""
        first, last = line["levels"]
        return bool(
            line["slice"] == len(self._spans)
            and first == number + 1
            and first <= last < first + self._setup.levels
            and not self.is_done(first)
        )

    def take(self, line: Mapping[str, Any]) -> None:
        """Take over a slice that the record knows."""
        first, last = line["levels"]
        self._spans.append((first, last))

    def is_done(self, level: int) -> bool:
        """Whether a level has had all of its slices."""
        return self._count(level) >= self._setup.levels

    def advance(
        self,
        number: int,
        fixed: Sequence[Fixed],
        payoffs: Numbers,
        scale: float,
    ) -> bool:
        """Train a slice in which the lowest level is `number` + 1, and keep it.

        Args:
            number: levels that are fixed.
            fixed: by player, the policies of these levels.
            payoffs: [2, n, m] what they earn against each other.
            scale: what rewards are multiplied by in training.

        Returns:
            Whether it was trained to its end; a signal may have ended it.
        """
        setup, at = self._setup, len(self._spans)
        begun = max((last for _, last in self._spans), default=0)
        first = number + 1
        # One level more begins with each slice, so that each has some of those below as they learn.
        last = max(first, min(begun + 1, number + setup.levels, self._most))
        place = self._place(at)
        shutil.rmtree(place, ignore_errors=True)  # what was killed while it trained
        config = self._config(first, last, fixed, payoffs, scale, place)
        anneal = [LevelAnnealing(self._left(config))] if anneals(config) else []
        heading = f"{setup.game}: levels {first} to {last}"
        result = train(config, Headed(self._view, heading), user_callbacks=anneal)
        if result.signal is not None:
            return False
        line = {"slice": at, "levels": [first, last], **_cost(result), **self._clock()}
        self._record.append(line)
        self.take(line)
        return True

    def players(self, level: int) -> dict[str, Player]:
        """The oracles of a level as its last slice left them, by `candidate_name`.

        Raises:
            RemudaError: the run's directory is missing or damaged.
        """
        found = SavedPolicies(RunDirectory.open(self._last_of(level))).all()
        return {
            candidate_name(player, i): found[oracle_name(level, player, i)]
            for player in range(2)
            for i in range(self._setup.oracles.candidates)
        }

    def member(self, level: int, player: int, number: int, is_greedy: bool) -> str:
        """An oracle of a level that is done as `Fixed` names it."""
        name = oracle_name(level, player, number)
        return f"{self._last_of(level).name}:{name}{GREEDY if is_greedy else ''}"

    def _count(self, level: int) -> int:
        """How many slices a level has had."""
        return sum(_has(span, level) for span in self._spans)

    def _last_of(self, level: int) -> Path:
        """The directory of the last slice that a level had."""
        return self._place(max(at for at, span in enumerate(self._spans) if _has(span, level)))

    def _place(self, at: int) -> Path:
        return self._record.directory / f"slice_{at}"

    def _config(
        self,
        first: int,
        last: int,
        fixed: Sequence[Fixed],
        payoffs: Numbers,
        scale: float,
        place: Path,
    ) -> Config:
        setup, home = self._setup, self._record.directory.absolute()
        levels = [
            [
                [oracle_name(level, player, i) for i in range(setup.oracles.candidates)]
                for player in range(2)
            ]
            for level in range(first, last + 1)
        ]
        names = [name for both in levels for own in both for name in own]
        base = _base(setup, place, scale, self._draw(len(self._spans)))
        policies = {name: self._policy(base, name) for name in names}
        turns, settings = setup.oracles.turns, setup.oracles
        active, share = len(levels), taught(len(levels))
        if turns is not None:
            turns = round(2 * turns * active / setup.levels / share)
        copies = NUM_ENVS * settings.candidates if settings.num_envs is None else settings.num_envs
        tree = {
            "env": {"num_envs": round(2 * copies * active / share), "options": dict(setup.options)},
            "policies": policies,
            "population": {
                "policies": names,
                "seats": _seats(setup, levels),
                "matchmaker": MATCHMAKER,
                "scripted": {RANDOM: RANDOM},
                "members_from": [f"{home}/{text}" for own in fixed for text in own.members],
                "options": {
                    "fixed": [own.names for own in fixed],
                    "levels": levels,
                    "payoffs": payoffs.tolist(),
                    "meta_solver": setup.meta_solver,
                    "tolerance": TOLERANCE,
                },
            },
            "run": {
                "turns": turns,
                "seconds": None if settings.seconds is None else settings.seconds / setup.levels,
            },
        }
        return load_config(overlay({**base, "policies": {}}, tree))

    def _policy(self, base: Mapping[str, Any], name: str) -> dict[str, Any]:
        """What is its own of an oracle: how it explores, and what it goes on with.

        A learning rate that falls in a straight line falls on where the slice before left it.
        """
        level, _, number = numbers_of(name)
        varied = base["policies"].get(f"exploiter_{number}", {})
        had, slices = self._count(level), self._setup.levels
        found = dict(varied)
        policy = overlay(base["policy"], varied)
        anneal = policy.get("ppo", {}).get("anneal_steps")
        said = self._setup.oracles.policy.get("ppo", {})
        if anneal is not None and "anneal_steps" not in said:
            left = 1.0 - had / slices
            found = overlay(
                found,
                {
                    "learning_rate": policy["learning_rate"] * left,
                    "ppo": {"anneal_steps": max(round(anneal * left), 1)},
                },
            )
        if had:
            before = self._last_of(level).absolute()
            found |= {"init_from": f"{before}:{name}", "init_optimizer": True}
        return found

    def _left(self, config: Config) -> dict[str, tuple[float, float]]:
        """By oracle, the shares of its training that are left at a slice's beginning and end."""
        slices = self._setup.levels
        names = config.population.policies
        assert isinstance(names, tuple)
        had = {name: self._count(numbers_of(name)[0]) for name in names}
        return {name: (1.0 - had[name] / slices, 1.0 - (had[name] + 1) / slices) for name in names}

    def _draw(self, at: int) -> int:
        """The seed of a slice."""
        return int(stream(self._setup.seed, "psro", "slices", at).integers(2**31))


class LevelAnnealing(Callback):
    """As `Annealing`, over all slices of each level."""

    def __init__(self, left: Mapping[str, tuple[float, float]]) -> None:
        """Lower each from one share of its first rate to another."""
        self._left = dict(left)

    def on_start(self, run: ActiveRun) -> None:
        """Begin where the slice before ended."""
        self._first = {name: run.config.policy_of(name).learning_rate for name in run.policies}
        self._set(run, 0.0)

    def on_metrics(self, run: ActiveRun, row: Mapping[str, float]) -> None:  # noqa: ARG002
        """Set the rates for what is left of the time."""
        assert run.config.run.seconds
        self._set(run, min(run.seconds / run.config.run.seconds, 1.0))

    def _set(self, run: ActiveRun, gone: float) -> None:
        for name, rate in self._first.items():
            begin, end = self._left[name]
            left = max(begin + (end - begin) * gone, Annealing.LEAST)
            run.set_hyperparameters({"learning_rate": rate * left}, name)


def oracle_name(level: int, player: int, number: int) -> str:
    """What a run calls an oracle of a level, from 1, of a player."""
    return f"level_{level}_{player}_{number}"


def numbers_of(name: str) -> tuple[int, int, int]:
    """Level, player and number of an oracle, by its name."""
    level, player, number = map(int, name.split("_")[1:])
    return level, player, number


def _has(span: tuple[int, int], level: int) -> bool:
    return span[0] <= level <= span[1]


def _base(setup: TrainedSetup, place: Path, scale: float, seed: int) -> dict[str, Any]:
    """The run of exploiters that a slice is made of: of one seat, and as many as candidates."""
    settings = setup.oracles
    one = ExploiterSettings(
        settings.candidates,
        1.0 if settings.seconds is None else settings.seconds,
        seed,
        settings.schedule,
        settings.num_envs,
        settings.policy,
        settings.turns,
    )
    config = one.config(Path("nowhere"), 0, place, scale)
    tree: dict[str, Any] = config.model_dump(mode="json", exclude_unset=True)
    tree.setdefault("policies", {})
    tree["game"] = setup.game
    tree["env"].pop("options", None)
    return tree


def _seats(setup: TrainedSetup, levels: Sequence[Sequence[Sequence[str]]]) -> dict[str, list[str]]:
    """By oracle, its player's agent; nothing where both agents' policies are of one kind.

    Then a fixed policy, which takes the seats of one that is like it, may take either.
    """
    agents = agents_of(setup.game, setup.options)
    first, second = kinds_of(agents)
    if first == second:
        return {}
    return {
        name: [agents[player].name]
        for both in levels
        for player, names in enumerate(both)
        for name in names
    }


def _cost(result: Result) -> dict[str, float]:
    record = result.record
    return {"steps": float(record.agent_steps), "trained_seconds": record.seconds}
