"""Saved policies of runs, which users refer to by `RUN`, `RUN:policy` or `RUN:policy@version`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from remuda.coordinator.requests import LIVE, ask_weights
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.tournaments.entrants import Entrant, Player
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import layout_size
from remuda.population.members.frozen_weights import frozen_copies
from remuda.population.members.imported import Imported
from remuda.population.members.table_parts import NO_POLICY, POLICY
from remuda.population.roster import unborn
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import env_options_at, find_checkpoint, load_snapshots, published
from remuda.system.checkpoint.names import COORDINATOR

ALL, FROZEN = "all", "frozen"
"""`RUN:all`: all policies of a run; `RUN:all@frozen`: all its fixed members."""
CHECKPOINT = "checkpoint-"
"""Prefix of a checkpoint's number in a version: `RUN:policy@checkpoint-7`."""
SAVED = f"leave out @{LIVE} to use the newest weights that it saved"


class UnknownPolicyError(UsageError, KeyError):
    """The error for a policy that a run does not have."""

    def __init__(self, name: object, known: list[str]) -> None:
        super().__init__(f"there is no policy {name!r}; there are {', '.join(known)}")

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Saved:
    """A saved or live policy of a run."""

    name: str  # its name in the run; `policy@version` for a frozen copy
    player: Player
    checkpoint: int | None  # the checkpoint of the weights; None for final or live weights
    is_frozen: bool = False
    is_live: bool = False  # the weights are those that a running run played with
    env_options: Mapping[str, Any] = field(default_factory=dict)
    """The environment options that the run had changed when it saved these weights."""

    @property
    def policy(self) -> str:
        """The policy's name without the version of a frozen copy."""
        return self.name.rpartition("@")[0] if self.is_frozen else self.name


class SavedPolicies:
    """The saved policies of one run."""

    def __init__(self, files: RunDirectory) -> None:
        self.files = files
        self.config = files.read_config()
        self._live: dict[str, Saved] = {}

    @cached_property
    def spec(self) -> RunSpec:
        return self.files.spec()

    @property
    def has_saved(self) -> bool:
        """Return whether the run has saved any weights."""
        files = self.files
        return bool(files.checkpoints.numbers()) or any(files.weights.glob("*.safetensors"))

    @property
    def specs(self) -> tuple[PolicySpec, ...]:
        """The specs of all policies that the run can have."""
        return self.spec.policies

    @property
    def unplayed(self) -> dict[str, str]:
        """Policies that never learn, each with the scripted policy that plays its seat."""
        config = self.config
        taken = {} if config.population.dealt else config.env.scripted
        return {
            name: scripted
            for name, scripted in taken.items()
            if config.policy_of(name).init_from is None
        }

    def names(self) -> tuple[str, ...]:
        """Return the policies with saved weights; empty while nothing is saved."""
        names, files = self.spec.roster.policies, self.files
        if not files.checkpoints.numbers() and not any(map(files.has_weights, names)):
            return ()
        if not self.config.population.dealt:
            return names
        return tuple(self._snapshots())

    @property
    def absent(self) -> tuple[str, ...]:
        """The policies without saved weights, newborn when those of the others were saved."""
        not_yet = {*unborn(self.config), *self.unplayed, *self.names()}
        return tuple(name for name in self.spec.roster.policies if name not in not_yet)

    def _snapshots(self, checkpoint: int | str = "final") -> dict[str, Snapshot]:
        return load_snapshots(self.files, self.spec, checkpoint)

    def copies(self, number: int | None = None) -> list[tuple[str, Snapshot]]:
        """Return policy and snapshot of each fixed member in checkpoint `number`, or the newest."""
        numbers = self.files.checkpoints.numbers()
        if not self.config.population.dealt or not numbers:
            return []
        if number is not None:
            find_checkpoint(self.files, self.spec, number)  # raises if it is missing
        read = numbers[-1] if number is None else number
        population = self.files.checkpoints.read(read, COORDINATOR)["population"]
        policies = population["identity"][:, POLICY]
        imported = zip(self._imported, policies[len(policies) - len(self._imported) :], strict=True)
        members = [member for member, policy in imported if policy != NO_POLICY]
        return [
            *frozen_copies(population),
            *((member.origin.name, member.snapshot) for member in members),
        ]

    def frozen(self, number: int | None = None) -> list[Saved]:
        """Return the frozen copies in checkpoint `number`, or the newest."""
        copies, numbers = self.copies(number), self.files.checkpoints.numbers()
        if not copies:
            return []
        read = numbers[-1] if number is None else number
        options = self.env_options(read)
        return [
            Saved(
                f"{name}@{snapshot.version}",
                self._player(name, snapshot),
                read,
                is_frozen=True,
                env_options=options,
            )
            for name, snapshot in copies
        ]

    def env_options(self, checkpoint: int | None = None) -> dict[str, Any]:
        """Return the changed environment options at a checkpoint; None: of the newest weights."""
        number = "final" if checkpoint is None else checkpoint
        return env_options_at(self.files, self.spec, number)

    def all(self) -> dict[str, Player]:
        """Return all policies, as saved at the same moment; empty while nothing is saved."""
        if not self.names():
            return {}
        return {name: self._player(name, found) for name, found in self._snapshots().items()}

    def find(self, name: str, checkpoint: int | str = "final") -> Saved:
        """Find a policy, or `policy@version` for a frozen copy.

        `checkpoint` is a number, `final` or `best`. For a frozen copy it is a number, or `final`
        for the newest checkpoint.
        """
        number = checkpoint if isinstance(checkpoint, int) else None
        if "@" in name and name not in self.spec.roster.policies:
            if checkpoint == "best":
                raise UsageError(f"{name} is a frozen copy: name a checkpoint by its number")
            frozen = self.frozen(number)
            for each in frozen:
                if each.name == name:
                    return each
            raise UnknownPolicyError(name, [*self.names(), *(each.name for each in frozen)])
        if not self.names():
            raise RunDirectoryError(f"{self.files.path} has saved no policy yet")
        taken = find_checkpoint(self.files, self.spec, checkpoint)
        found = self._snapshots("final" if taken is None else taken)
        if name not in found:
            raise UnknownPolicyError(name, list(found))
        player, options = self._player(name, found[name]), self.env_options(taken)
        return Saved(name, player, taken, env_options=options)

    def version(self, name: str, version: int) -> Saved:
        """Find a version of a policy in the final weights, checkpoints and their frozen copies."""
        saved = set()
        for found in self._versions(name):
            if found.player.snapshot.version == version:
                return found
            saved.add(found.player.snapshot.version)
        known = ", ".join(map(str, sorted(saved)))
        raise UsageError(f"{self.files.path} has no version {version} of {name}; it has {known}")

    def _versions(self, name: str) -> Iterator[Saved]:
        older = self.files.checkpoints.numbers()[:-1]
        yield from (each for each in self.frozen() if each.policy == name)
        yield from self._learning(name)
        for number in reversed(older):
            yield from (each for each in self.frozen(number) if each.policy == name)

    def _learning(self, name: str) -> Iterator[Saved]:
        """Yield a learning policy's final weights, then those of checkpoints, newest first."""
        yield self.find(name)
        for number in reversed(self.files.checkpoints.numbers()):
            snapshots = published(self.files, self.spec, number)
            if name in snapshots:
                player, options = self._player(name, snapshots[name]), self.env_options(number)
                yield Saved(name, player, number, env_options=options)

    def live(self, name: str) -> Saved:
        """Return a policy with a live run's current weights; later calls return the same."""
        if name in self._live:
            return self._live[name]
        spec = next((spec for spec in self.specs if spec.name == name), None)
        if spec is None:
            raise UnknownPolicyError(name, list(self.spec.roster.policies))
        if not self.files.is_running():
            raise UsageError(f"{self.files.path} is not running, so no policy is {LIVE}; {SAVED}")
        size = layout_size(spec.network().shapes)
        try:
            snapshot, options = ask_weights(self.files.path, name, size)
        except UsageError as error:
            raise UsageError(f"{error}; {SAVED}") from None
        player = self._player(name, snapshot)
        self._live[name] = Saved(name, player, None, is_live=True, env_options=options)
        return self._live[name]

    def learning(self, name: str, version: int) -> Saved | None:
        saved = self._learning(name)
        return next((each for each in saved if each.player.snapshot.version == version), None)

    def _player(self, policy: str, snapshot: Snapshot) -> Player:
        likes = {member.origin.name: member.origin.like for member in self._imported}
        like = likes.get(policy, policy)
        spec = next(spec for spec in self.specs if spec.name == like)
        num_envs = self.config.env.num_envs
        return Player(spec, snapshot, self.spec.agent_of(spec.name), num_envs)

    @cached_property
    def _imported(self) -> tuple[Imported, ...]:
        return self.files.imported.read()


@dataclass(frozen=True)
class Reference:
    """A reference to a policy of a run."""

    text: str  # the user's text
    run: Path
    policy: str = ""  # empty if none was named
    which: str = ""  # the part behind the `@`; empty for the newest weights

    @staticmethod
    def parse(text: str) -> Reference:
        """Parse `RUN`, `RUN:policy` or `RUN:policy@WHICH`; RUN is the longest directory found."""
        whole = Path(os.path.expanduser(text))
        if os.path.isdir(whole):  # also False for names that are too long for the disk
            return Reference(text, whole)
        run, colon, policy = text.rpartition(":")
        if not colon:
            return Reference(text, whole)
        parts = text.split(":")
        for count in range(len(parts) - 1, 0, -1):
            if os.path.isdir(os.path.expanduser(":".join(parts[:count]))):
                run, policy = ":".join(parts[:count]), ":".join(parts[count:])
                break
        name, at, which = policy.rpartition("@")
        if not at:
            name, which = policy, ""
        return Reference(text, Path(os.path.expanduser(run)), name, which)

    def open(self) -> SavedPolicies:
        return SavedPolicies(RunDirectory.open(self.run))

    def find(self, saved: SavedPolicies | None = None, default: str = "") -> Saved:
        """Find the policy; without a name it is `default`, or the only policy of the run."""
        saved = self.open() if saved is None else saved
        name = self.policy or self._only(saved, default)
        if f"{name}@{self.which}" in {spec.name for spec in saved.specs}:
            return saved.find(f"{name}@{self.which}")
        if self.which == LIVE:
            return saved.live(name)
        if self.which in ("", "final", "best"):
            try:
                return saved.find(name, self.which or "final")
            except UnknownPolicyError as error:
                raise UsageError(f"{self.text}: {error}") from None
        if self.which.isdecimal():
            return saved.version(name, int(self.which))
        number = self.which.removeprefix(CHECKPOINT)
        if self.which.startswith(CHECKPOINT) and number.isdecimal():
            return saved.find(name, int(number))
        raise UsageError(
            f"{self.text}: {self.which!r} is no version; name it RUN:policy, with @VERSION (of a "
            f"frozen copy or a checkpoint), @best, @final or @{CHECKPOINT}N appended for weights "
            f"other than the newest saved ones, or @{LIVE} for those that a run plays with now"
        )

    def find_learned(self, saved: SavedPolicies, default: str = "") -> Saved:
        """Find the policy as `find` does, but refuse a policy that never learned."""
        found = self.find(saved, default)
        if scripted := saved.unplayed.get(found.name):
            word = self.text if self.policy else f"{self.text}:{found.name}"
            raise UsageError(
                f"{word} has learned nothing: in {self.run} {scripted} plays the seat of "
                f"{found.name} (env.scripted); name another policy"
            )
        return found

    def env_options(self, saved: SavedPolicies) -> Mapping[str, Any]:
        """Return the environment options that the run had changed when it saved the policy."""
        if self.which != LIVE and not saved.has_saved:
            return {}
        if not saved.spec.env.changeable_options:
            return {}
        names = {spec.name for spec in saved.specs} if self.policy else saved.names()
        if not names or (self.policy and self.policy not in names):  # `RUN:all`, or scripted
            return saved.env_options()
        return self.find(saved, default=next(iter(names))).env_options

    def several(self, saved: SavedPolicies) -> dict[str, Entrant]:
        """Return the policies of `RUN:all` or `RUN:all@frozen`; empty for other references."""
        if self.policy != ALL or ALL in {spec.name for spec in saved.specs}:
            return {}
        if self.which not in ("", FROZEN):
            raise UsageError(
                f"{self.text}: {ALL} means all policies, {ALL}@{FROZEN} their frozen copies; "
                f"name policies @{self.which} one by one"
            )
        found: dict[str, Entrant]
        if not self.which:
            found = {n: each for n, each in saved.all().items() if n not in saved.unplayed}
        else:
            found = {each.name: each.player for each in saved.frozen()}
            found |= saved.config.population.scripted
        if not found:
            what = "frozen copy" if self.which else "policy"
            raise UsageError(f"{self.run} has saved no {what} yet")
        return found

    def _only(self, saved: SavedPolicies, default: str) -> str:
        live = self.which == LIVE
        names = tuple(spec.name for spec in saved.specs) if live else saved.names()
        if default in names:
            return default
        if len(names) == 1:
            return names[0]
        if not names:
            raise RunDirectoryError(f"{self.run} has saved no policy yet")
        missing = f"has no policy {default}" if default else "has several policies"
        raise UsageError(
            f"{self.text} {missing}; name one of {', '.join(names)}, as in {self.run}:{names[0]}"
        )


def is_of_run(text: str) -> bool:
    """Return whether a text refers to a run or its policy, and not to a scripted policy."""
    run = Reference.parse(text).run
    # `isfile` is also False for names that are too long.
    return "/" in text or os.path.isfile(run / "config.yaml")
