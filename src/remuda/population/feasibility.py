"""Test whether matches can still be made when a policy leaves."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from remuda.errors import ConfigError
from remuda.population.ledger import Ledger
from remuda.population.matchmaking import Matchmaker
from remuda.population.records import Member, PolicyRef, Population


def can_do_without(
    members: Sequence[Member], ref: PolicyRef, matchmaker: Matchmaker, least: int = 1
) -> bool:
    """Return whether matches can be made without a policy, also by learning policies alone."""
    others = [member for member in members if member.ref != ref]
    learners = [member for member in others if member.learns]
    enough = len(learners) >= least
    return enough and all(_makes_matches(some, matchmaker) for some in (others, learners))


def can_stand_in(members: Sequence[Member], ref: PolicyRef, matchmaker: Matchmaker) -> bool:
    """Return whether matches can be made with a frozen copy in place of a policy."""
    live = next(member for member in members if member.ref == ref)
    others = [member for member in members if member.ref != ref]
    versions = (member.ref.version for member in others if not member.ref.is_scripted)
    newest = max(versions, default=0)
    frozen = Member(PolicyRef(ref.policy, max(newest, 0) + 1), live.seats)
    frozen.place = live.place
    learns = any(member.learns for member in others)
    return learns and _makes_matches([*others, frozen], matchmaker)


def _makes_matches(members: Sequence[Member], matchmaker: Matchmaker) -> bool:
    left = Population()
    for member in members:
        left.add(Member(member.ref, member.seats, member.parent), member.place)
    trial = copy.deepcopy(matchmaker)
    try:
        trial.propose(left, Ledger(left), 1, np.random.default_rng(0))
    except ConfigError:
        return False
    return True
