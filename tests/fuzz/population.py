"""Random matches and turns for the kernels of populations and actors, against plain loops."""

import math

import numpy as np
from openskill.models import PlackettLuce

from remuda.actor.frames import FrameStack
from remuda.envs.checks import NONE
from remuda.policies.selectors import explore_allowed, take_best_joint
from remuda.population.ledger.ledger import CONCEDED, EARNED, MET, WON, count
from remuda.population.ledger.ratings import KAPPA, TAU, count_teams, rate_all
from remuda.population.ledger.records import (
    FRESH,
    GAMES,
    MEETINGS,
    PLAYED,
    RATING,
    REWARD,
    SQUARES,
    TEAM,
    TEAM_SQUARES,
    UNCERTAINTY,
    WELFARE,
    WINS,
)


def _matches(random, teams=False):
    """Who sat where, what each returned, which matches are over, and the members' numbers."""
    seats, members = int(random.integers(1, 6)), int(random.integers(1, 8))
    played = int(random.integers(0, 7))
    slots = random.integers(0, members, (played, seats))
    returns = random.integers(-3, 4, (played, seats)).astype(np.float64)
    numbers = np.zeros((members, len(FRESH)))
    numbers[:, RATING] = random.normal(25.0, 5.0, members)
    numbers[:, UNCERTAINTY] = random.uniform(0.5, 9.0, members)
    over = random.random(played) < 0.8
    return slots, returns, over, numbers


def ledgers(random):
    """Meetings, wins, payoffs and games of each pair of members."""
    slots, returns, over, numbers = _matches(random)
    members, rows = len(numbers), int(random.integers(1, len(numbers) + 1))
    kept = float(random.choice([1.0, 0.9]))
    pairs, recent = np.zeros((4, rows, members)), np.zeros((2, rows, members))
    exact, forgetting, plain = pairs.copy(), recent.copy(), numbers.copy()
    count(slots, returns, over, pairs, numbers, recent, kept)
    for sat, earned in zip(slots[over], returns[over], strict=True):
        for one in set(sat.tolist()) & set(range(rows)):
            forgetting[:, one] *= kept
        for one in set(sat.tolist()):
            plain[one, [PLAYED, WELFARE]] += 1.0, earned.sum()
        for i, one in enumerate(sat):
            plain[one, [GAMES, REWARD, SQUARES]] += 1.0, earned[i], earned[i] ** 2
            for j, other in enumerate(sat):
                if i == j:
                    continue
                won = 0.5 + 0.5 * np.sign(earned[i] - earned[j])
                if one != other:
                    plain[one, [MEETINGS, WINS]] += 1.0, won
                if one < rows:
                    exact[[MET, WON, EARNED, CONCEDED], one, other] += (
                        1.0,
                        won,
                        earned[i],
                        earned[j],
                    )
                    forgetting[[MET, WON], one, other] += 1.0, won
    np.testing.assert_allclose(pairs, exact)
    np.testing.assert_allclose(recent, forgetting, atol=1e-9)
    np.testing.assert_allclose(numbers, plain)


def ratings(random):
    """Plackett and Luce's ratings, by openskill; sides of one seat or more."""
    slots, returns, over, numbers = _matches(random)
    seats = slots.shape[1]
    sides = random.integers(0, int(random.integers(1, seats + 1)), seats)
    sides = np.unique(sides, return_inverse=True)[1].astype(np.int64)
    plain = numbers.copy()
    rate_all(slots, returns, over, sides, numbers)
    model = PlackettLuce(tau=TAU, kappa=KAPPA)
    for sat, earned in zip(slots[over], returns[over], strict=True):
        if len(set(sat.tolist())) == 1 or sides.max() == 0:
            continue
        groups = [np.flatnonzero(sides == side) for side in range(sides.max() + 1)]
        rated = model.rate(
            [[model.rating(*plain[sat[i], [RATING, UNCERTAINTY]]) for i in g] for g in groups],
            scores=[float(earned[g].mean()) for g in groups],
        )
        new = np.zeros((seats, 2))
        for group, side in zip(groups, rated, strict=True):
            new[group] = [(one.mu, one.sigma) for one in side]
        for one in set(sat.tolist()):
            plain[one, [RATING, UNCERTAINTY]] = new[sat == one].mean(0)
    np.testing.assert_allclose(numbers, plain, rtol=1e-7)


def teams(random):
    """What the team of each seat earned on average."""
    slots, returns, over, numbers = _matches(random)
    sides = random.integers(0, 3, slots.shape[1])
    plain = numbers.copy()
    count_teams(slots, returns, over, sides, numbers)
    for sat, earned in zip(slots[over], returns[over], strict=True):
        for i, one in enumerate(sat):
            mean = earned[sides == sides[i]].mean()
            plain[one, [TEAM, TEAM_SQUARES]] += mean, mean**2
    np.testing.assert_allclose(numbers, plain)


def frames(random):
    """Stacked observations, zeros before an episode's start; what is not finite is found."""
    streams, size, n_frames = (int(random.integers(1, most)) for most in (7, 20, 5))
    dtype = str(random.choice(["float32", "uint8"]))
    stacked = np.full((streams, n_frames * size), 7.0, np.float32)
    stack, plain = FrameStack(stacked, size), [[] for _ in range(streams)]
    shown = stacked.copy()
    for _ in range(12):
        acts = random.random(streams) < 0.7
        seen = (100 * random.random((streams, size))).astype(dtype)
        bad = -1
        if dtype == "float32" and random.random() < 0.2:
            bad = int(random.integers(0, streams))
            seen[bad, int(random.integers(0, size))] = random.choice([np.nan, np.inf, -np.inf])
        found = stack.push(seen, acts)
        assert found == (bad if bad >= 0 and acts[bad] else NONE)
        for s in np.flatnonzero(acts):
            plain[s].append(seen[s].astype(np.float32))
            before = [np.zeros(size, np.float32)] * n_frames
            shown[s] = np.concatenate([*before, *plain[s]][-n_frames:])
        np.testing.assert_array_equal(stacked, shown)
        ends = random.random(streams) < 0.2
        stack.start(ends)
        for s in np.flatnonzero(ends):
            plain[s] = []


def combinations(random):
    """The best allowed combination of choices, and those that exploration draws."""
    sizes = random.integers(1, 4, int(random.integers(1, 4)))
    rows, total = int(random.integers(0, 12)), math.prod(sizes.tolist())
    masks = random.random((rows, int(sizes.sum()))) < 0.6
    masks[:, np.cumsum(sizes) - sizes] = True
    if random.random() < 0.3:
        masks = masks[:, :0]
    outputs = random.integers(-3, 4, (rows, total)).astype(np.float32)
    best = np.full((rows, len(sizes)), -1, np.int64)
    take_best_joint(outputs, masks, sizes, best)
    drawn, uniforms, epsilon = best.copy(), random.random(rows), float(random.choice([0.3, 1.0]))
    explore_allowed(drawn, masks, sizes, uniforms, epsilon)
    for n in range(rows):
        allowed = [
            index
            for index in np.ndindex(*sizes)
            if not masks.shape[1] or masks[n, np.cumsum(sizes) - sizes + np.array(index)].all()
        ]
        values = [outputs[n, np.ravel_multi_index(index, sizes)] for index in allowed]
        assert tuple(best[n]) == allowed[int(np.argmax(values))]
        chosen = tuple(best[n])
        if uniforms[n] < epsilon:
            chosen = allowed[int(uniforms[n] / epsilon * len(allowed))]
        assert tuple(drawn[n]) == chosen
