"""The maximum-entropy distribution under the constraint that some expectations are at least zero.

All polytopes of equilibria are of this form: {p: p >= 0, sum p = 1, G p >= 0}. The maximum-entropy
distribution is unique, and treats equivalent strategies equally.

First a linear program finds which probabilities and which expectations can be positive; the others
are fixed at zero. In the remaining face the maximum is an interior point, so a primal-dual Newton
method (Boyd and Vandenberghe 2004, "Convex optimization", section 11.7) converges to machine
precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from remuda.errors import UsageError
from remuda.types import Bools, Numbers

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
POSITIVE = 1e-9  # probabilities and expectations below this are treated as zero
TRIES = (("highs", 1e3), ("highs", 1e2), ("highs-ds", 1e3))
"""Solvers and upper bounds of the variables; the next pair is tried if rounding errors occur."""
CERTAIN = 1e-6  # variables that the linear program raises to almost 1 can certainly be positive
ROUNDS = 5  # linear programs, at most; one is usual
RANK = 1e-9  # singular values below this, relative to the largest, are treated as zero
EVEN = 1e-13  # tolerance for checking whether the uniform distribution satisfies the equalities
GAP = 1e-17  # mean product of slack and multiplier at which Newton's method ends
STEPS = 200  # most steps of Newton's method; 12 to 36 are usual


def solve_program(*program: Any) -> Any:
    """Solve a linear program of payoffs, with the arguments of `scipy.optimize.linprog`."""
    found = linprog(*program, method="highs", options=TIGHT)
    if found.status != 0:
        raise UsageError(
            f"payoffs: their linear program has no solution ({found.message}); check "
            "whether a few of them are orders of magnitude larger than the rest"
        )
    return found


@dataclass(frozen=True)
class Face:
    """The smallest face of {p: p >= 0, sum p = 1, G p >= 0} that contains the whole polytope."""

    support: Bools  # [N] which probabilities are positive somewhere
    tight: Bools  # [K] which expectations are zero everywhere
    inside: Numbers  # [N] a distribution, positive in `support`, with G p > 0 outside `tight`


def find_face(
    gains: Numbers, possible: Bools | None = None, zero: Bools | None = None
) -> Face | None:
    """Return which probabilities, and which expectations, can be positive; None: not found.

    One linear program is usually enough. The polytope is the base of a cone, and every number that
    can be positive can be 1 in the cone.

    - `gains`: [K, N] the rows of G, scaled to about 1.
    - `possible`: [N] the probabilities that may be positive; None: all.
    - `zero`: [K] the expectations known to be zero; None: none is known.
    """
    rows, count = gains.shape
    possible = np.ones(count, np.bool_) if possible is None else possible
    zero = np.zeros(rows, np.bool_) if zero is None else zero
    inner = sparse.csr_array(gains[:, possible])
    counting = np.ones(int(possible.sum()), np.bool_), ~zero
    inside: Numbers = np.zeros(len(counting[0]))
    for _ in range(ROUNDS):
        found = _reach(inner, zero, *counting)
        if found is None:
            break
        reached, partly = found
        inside += reached
        before = int(counting[0].sum() + counting[1].sum())
        counting = counting[0] & (reached <= POSITIVE), counting[1] & (inner @ reached <= POSITIVE)
        # A program may raise some numbers only in part, such as those of duplicate strategies.
        if not partly or int(counting[0].sum() + counting[1].sum()) == before:
            break
    if not inside.any():
        return None
    full = np.zeros(count)
    full[possible] = np.where(counting[0], 0.0, inside)
    full /= full.sum()
    tight = zero | counting[1]
    return Face(full > 0.0, tight, full)


def _reach(
    inner: sparse.csr_array, zero: Bools, of_p: Bools, of_rows: Bools
) -> tuple[Numbers, bool] | None:
    """Return a distribution with the most positive entries, and whether more may exist.

    `inner`: [K, n] rows of G; `zero`: [K] which expectations must be zero; `of_p`: [n] and
    `of_rows`: [K] which probabilities and expectations the objective counts.
    """
    count, rows = len(of_p), len(zero)
    eye, eyes = sparse.eye_array(count), sparse.eye_array(rows)
    # Columns: p, then the counted probabilities, then the counted expectations.
    limits = sparse.block_array([[-eye, eye, None], [-inner, None, eyes]], format="csr")
    fixed = sparse.hstack([inner[zero], sparse.csr_array((int(zero.sum()), count + rows))])
    counting = np.concatenate([of_p, of_rows]).astype(np.float64)
    for method, largest in TRIES:
        found = linprog(
            np.concatenate([np.zeros(count), -counting]),
            limits,
            np.zeros(count + rows),
            fixed.tocsr() if zero.any() else None,
            np.zeros(fixed.shape[0]) if zero.any() else None,
            [(0.0, largest)] * count + [(0.0, each) for each in counting],
            method=method,
            options=TIGHT,
        )
        if found.status == 0:
            raised = found.x[count:][counting > 0.0]
            partly = bool(((raised > POSITIVE) & (raised < 1.0 - CERTAIN)).any())
            total = float(found.x[:count].sum())
            return found.x[:count] / (total if total > POSITIVE else np.inf), partly
    return None


def maximize(gains: Numbers, face: Face | None = None) -> tuple[Numbers, int] | None:
    """Return the maximum-entropy distribution with G p >= 0, and the dimension of its polytope.

    `gains`: [K, N] the rows of G.

    Returns: the distribution [N] and the dimension, 0 for a single point; None: not found.
    """
    sizes = np.abs(gains).max(1, initial=0.0)
    scaled = gains / np.where(sizes > 0.0, sizes, 1.0)[:, None]
    face = face or find_face(scaled)
    if face is None:
        return None
    count = int(face.support.sum())
    equal = np.vstack([np.ones(count), scaled[face.tight][:, face.support]])
    wanted = np.zeros(len(equal))
    wanted[0] = 1.0
    left, strengths, right = np.linalg.svd(equal, full_matrices=False)
    nonzero = strengths > RANK * strengths[0]
    equal, wanted = right[nonzero], (left.T @ wanted)[nonzero] / strengths[nonzero]
    dimension = count - int(nonzero.sum())
    found = np.zeros(len(face.support))
    if dimension == 0:
        found[face.support] = equal.T @ wanted
        return found, 0
    above = scaled[~face.tight][:, face.support]
    even: Numbers = np.full(count, 1.0 / count)
    best: Numbers | None = even
    if np.abs(equal @ even - wanted).max() > EVEN or (above @ even < 0.0).any():
        best = _newton(equal, wanted, above, face.inside[face.support])
    if best is None:
        return None
    found[face.support] = best
    return found, dimension


@dataclass(frozen=True)
class _Point:
    """An iterate of Newton's method: p [n], slacks [k] of G p >= 0, and multipliers."""

    p: Numbers
    slacks: Numbers
    multipliers: Numbers  # [e + k] of the equalities, then of the inequalities

    def moved(self, step: _Point, size: float) -> _Point:
        return _Point(
            self.p + size * step.p,
            self.slacks + size * step.slacks,
            self.multipliers + size * step.multipliers,
        )


def _newton(equal: Numbers, wanted: Numbers, above: Numbers, start: Numbers) -> Numbers | None:
    """Maximize the entropy with `equal p = wanted`, `above p >= 0`, from an interior point."""
    equalities = len(equal)
    both = np.vstack([equal, above])
    slacks = np.maximum(above @ start, 1e-9)
    multipliers = np.concatenate([np.zeros(equalities), np.full(len(above), 1.0)])
    point = _Point(start, slacks, multipliers)
    for _ in range(STEPS):
        gap = float(point.slacks @ point.multipliers[equalities:]) / max(len(above), 1)
        center = 0.1 * gap
        off = _residuals(point, both, wanted, center)
        if gap <= GAP and np.abs(np.concatenate(off)).max() <= 1e-11:
            return point.p
        step = _step(point, both, wanted, off)
        if step is None:
            return None
        size = _largest(point, step, equalities)
        norm = np.linalg.norm(np.concatenate(off))
        while size > 1e-12:
            tried = point.moved(step, size)
            reached = np.linalg.norm(np.concatenate(_residuals(tried, both, wanted, center)))
            if reached <= (1.0 - 0.01 * size) * norm:
                break
            size *= 0.5
        else:
            return point.p  # rounding prevents further progress; the caller verifies the result
        point = tried
    return point.p


def _residuals(
    point: _Point, both: Numbers, wanted: Numbers, center: float
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the residuals: gradient [n], equalities and slacks [e + k], complementarity [k]."""
    equalities = len(wanted)
    gradient = np.log(point.p) + 1.0 - both.T @ point.multipliers
    reached = both @ point.p
    reached[:equalities] -= wanted
    reached[equalities:] -= point.slacks
    return gradient, reached, point.slacks * point.multipliers[equalities:] - center


def _step(
    point: _Point, both: Numbers, wanted: Numbers, off: tuple[Numbers, Numbers, Numbers]
) -> _Point | None:
    gradient, reached, complementary = off
    equalities = len(wanted)
    prices = point.multipliers[equalities:]
    system = (both * point.p) @ both.T
    own = np.arange(equalities, len(both))
    system[own, own] += point.slacks / prices
    sides = both @ (point.p * gradient) - reached
    sides[equalities:] -= complementary / prices
    try:
        multipliers: Numbers = np.linalg.solve(system, sides).astype(np.float64)
    except np.linalg.LinAlgError:
        return None
    p = point.p * (both.T @ multipliers - gradient)
    slacks = -(complementary + point.slacks * multipliers[equalities:]) / prices
    return _Point(p, slacks, multipliers)


def _largest(point: _Point, step: _Point, equalities: int) -> float:
    """Return the largest step, at most 1, that keeps all positive numbers positive."""
    size = 1.0
    for old, change in (
        (point.p, step.p),
        (point.slacks, step.slacks),
        (point.multipliers[equalities:], step.multipliers[equalities:]),
    ):
        falling = change < 0.0
        if falling.any():
            size = min(size, 0.99 * float((-old[falling] / change[falling]).min()))
    return size
