"""The price of anarchy: what is lost where each role looks after itself.

Welfare is the sum of what all roles earn. Koutsoupias and Papadimitriou 1999, "Worst-case
equilibria", compare the worst equilibrium with the optimum by their ratio; payoffs may be gains or
costs there, and the ratio means something for one or the other only:

- gains, an optimum above 0 and no equilibrium below it: worst / optimum, from 1 (nothing is lost)
  down to 0;
- costs, an optimum below 0: worst / optimum, from 1 (nothing is lost) upwards;
- else there is no ratio (NaN): an optimum of 0, or equilibria below 0 with an optimum above it.

The loss, optimum - worst in units of reward, always has a meaning. It does not depend on where
payoffs have their 0, and the ratio does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.bias import Estimate, check_draws, estimate_from
from remuda.analysis.payoff import Numbers, Payoffs
from remuda.analysis.plain import plain
from remuda.errors import UsageError

Profile = npt.ArrayLike | Sequence[npt.ArrayLike]
"""A mixture [n_r] for each of R roles, or a joint distribution [n_1, ..., n_R], as of a correlated
equilibrium."""
Profiles = Sequence[Profile] | Callable[[Numbers], Sequence[Profile]]
"""Equilibria, or what works them out from payoffs [R, n_1, ..., n_R]."""


@dataclass(frozen=True)
class PriceOfAnarchy:
    """How equilibria compare with the optimum.

    Attributes:
        optimum: the most that all roles can earn together.
        worst: what they earn in the worst of the equilibria.
        best: in the best of them.
        price: worst / optimum, the price of anarchy; NaN where it means nothing (see above).
        stability: best / optimum, the price of stability (Anshelevich et al. 2004, "The price of
            stability for network design with fair cost allocation"); NaN likewise.
        loss: optimum - worst.
        sign: "gains", "costs" or "none", by which the ratios are to be read.
        regrets: [equilibria] the most that a role could gain by another strategy: how far each is
            from an equilibrium; 0 at one (of joint distributions, a coarse correlated one).
    """

    optimum: float
    worst: float
    best: float
    price: float
    stability: float
    loss: float
    sign: str
    regrets: Numbers

    def as_summary(self) -> dict[str, Any]:
        """All of it as plain data; None stands for what is not defined."""
        return {
            "optimum": self.optimum,
            "worst": self.worst,
            "best": self.best,
            "price": plain(self.price),
            "stability": plain(self.stability),
            "loss": self.loss,
            "sign": self.sign,
            "regrets": plain(self.regrets),
        }


def price_of_anarchy(
    payoffs: npt.ArrayLike, equilibria: Sequence[Profile], optimum: float | None = None
) -> PriceOfAnarchy:
    """Compare equilibria of a game with its optimum.

    Args:
        payoffs: [R, n_1, ..., n_R] of each role.
        equilibria: one or more; the worst of those that are given is the worst.
        optimum: the most that all roles can earn together, where it is known of the whole game;
            None: the best cell of these payoffs.

    Raises:
        UsageError: payoffs or equilibria cannot be used, or one of them earns more than `optimum`.
    """
    p = _payoffs(payoffs)
    joints = [_joint(each, p.shape[1:]) for each in equilibria]
    found = _compare(p, joints, optimum)
    if found.loss < -1e-9 * max(abs(found.optimum), 1.0) or (
        found.best - found.optimum > 1e-9 * max(abs(found.optimum), 1.0)
    ):
        raise UsageError(
            f"optimum is {found.optimum:g}, and an equilibrium earns {found.best:g}: it is no "
            "optimum; give a larger one, or none"
        )
    return found


@dataclass(frozen=True)
class UncertainPrice:
    """The price of anarchy where payoffs are known by matches only.

    Attributes:
        found: at the means.
        price: with its interval; all NaN where it means nothing at the means or in some sample.
        loss: with its interval.
        worst: with its interval.
        regrets: [2, equilibria] intervals of the regrets; empty where equilibria are worked out
            anew for each sample.
    """

    found: PriceOfAnarchy
    price: Estimate
    loss: Estimate
    worst: Estimate
    regrets: Numbers

    def as_summary(self) -> dict[str, Any]:
        """All of it as plain data; None stands for what is not known."""
        return {
            **self.found.as_summary(),
            "price": self.price.as_summary(),
            "loss": self.loss.as_summary(),
            "worst": self.worst.as_summary(),
            "regret_intervals": plain(self.regrets),
        }


def uncertain_price(
    payoffs: Payoffs,
    equilibria: Profiles,
    rng: np.random.Generator,
    *,
    optimum: float | None = None,
    draws: int = 400,
    level: float = 0.95,
) -> UncertainPrice:
    """Compare equilibria with the optimum, with what is not known of the payoffs.

    Without a known optimum the best of many noisy cells is taken for it, which is too good by luck;
    `corrected` takes out as much of that as resampling shows. An equilibrium may earn more than a
    known optimum by noise.

    Args:
        payoffs: of any number of roles.
        equilibria: profiles that stay, or what works them out from payoffs, which is asked anew for
            each sample.
        rng: for the samples.
        optimum: as for `price_of_anarchy`.
        draws: samples.
        level: of the intervals.

    Raises:
        UsageError: cells were never played, or arguments cannot be used.
    """
    check_draws(draws)
    payoffs.check_whole()
    found = _asked(payoffs.means, equilibria, optimum)
    sampled = [_asked(sample, equilibria, optimum) for sample in payoffs.sample(draws, rng)]

    def spread(name: str) -> Estimate:
        value = getattr(found, name)
        drawn = np.array([getattr(each, name) for each in sampled])
        if np.isnan(value) or np.isnan(drawn).any():
            return Estimate(value, np.nan, (np.nan, np.nan), draws=draws, level=level)
        low = 0.0 if name == "loss" and optimum is None else -np.inf
        return estimate_from(value, drawn, bounds=(low, np.inf), level=level)

    regrets = np.zeros((2, 0))
    if not callable(equilibria):
        ends = [0.5 - level / 2.0, 0.5 + level / 2.0]
        regrets = np.quantile(np.array([each.regrets for each in sampled]), ends, axis=0)
    return UncertainPrice(found, spread("price"), spread("loss"), spread("worst"), regrets)


def _asked(payoffs: Numbers, equilibria: Profiles, optimum: float | None) -> PriceOfAnarchy:
    profiles = equilibria(payoffs) if callable(equilibria) else equilibria
    return _compare(payoffs, [_joint(each, payoffs.shape[1:]) for each in profiles], optimum)


def _compare(payoffs: Numbers, joints: Sequence[Numbers], optimum: float | None) -> PriceOfAnarchy:
    if not joints:
        raise UsageError("there are no equilibria to compare with the optimum; give at least one")
    if optimum is not None and not np.isfinite(optimum):
        raise UsageError(f"optimum is {optimum}; it must be what all roles can earn together")
    welfare = payoffs.sum(0)
    earned = [float((joint * welfare).sum()) for joint in joints]
    most = float(welfare.max()) if optimum is None else float(optimum)
    worst, best = min(earned), max(earned)
    sign = "none"
    if most > 0.0 and worst >= 0.0:
        sign = "gains"
    elif most < 0.0:
        sign = "costs"
    return PriceOfAnarchy(
        most,
        worst,
        best,
        worst / most if sign != "none" else np.nan,
        best / most if sign != "none" else np.nan,
        most - worst,
        sign,
        np.array([_regret(payoffs, joint) for joint in joints]),
    )


def _regret(payoffs: Numbers, joint: Numbers) -> float:
    """The most that any role gains by one other strategy, whatever it was told to play."""
    gains = []
    for role, own in enumerate(payoffs):
        others = joint.sum(role, keepdims=True)
        axes = tuple(axis for axis in range(joint.ndim) if axis != role)
        gains.append(float((own * others).sum(axes).max() - (own * joint).sum()))
    return max(*gains, 0.0)


def _payoffs(payoffs: npt.ArrayLike) -> Numbers:
    p = np.asarray(payoffs, np.float64)
    if p.ndim < 2 or p.shape[0] != p.ndim - 1 or min(p.shape) < 1:
        raise UsageError(f"payoffs are {p.shape}; they must be [R, n_1, ..., n_R], by role first")
    if not np.isfinite(p).all():
        raise UsageError("payoffs: some are not numbers; let those who never met play")
    return p


def _joint(profile: Profile, shape: tuple[int, ...]) -> Numbers:
    """A profile as a joint distribution [n_1, ..., n_R].

    Mixtures of R roles may have the shape of a joint distribution, but add up to R and not to 1.
    """
    joint = _as_array(profile)
    if joint.shape != shape or abs(joint.sum() - 1.0) > 1e-6:
        mixtures = [np.asarray(each, np.float64) for each in _parts(profile)]
        if tuple(each.shape for each in mixtures) != tuple((size,) for size in shape):
            raise UsageError(
                f"an equilibrium has shapes {[each.shape for each in mixtures]}; it must be a "
                f"mixture for each role, {[(size,) for size in shape]}, or an array {shape}"
            )
        joint = reduce(np.multiply.outer, mixtures)
    if (joint < -1e-9).any() or abs(joint.sum() - 1.0) > 1e-6:
        raise UsageError(f"an equilibrium adds up to {joint.sum():g}; it must be probabilities")
    found: Numbers = np.maximum(joint, 0.0)
    return found


def _as_array(profile: Profile) -> Numbers:
    """The profile as one array, empty where it is none: mixtures of unlike lengths."""
    try:
        return np.asarray(profile, np.float64)
    except ValueError:
        return np.zeros(0)


def _parts(profile: Profile) -> list[Any]:
    if not isinstance(profile, Sequence | np.ndarray):
        raise UsageError(f"an equilibrium is {profile!r}; it must be a mixture for each role")
    return list(profile)
