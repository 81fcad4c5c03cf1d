"""How good each policy is in one objective or several, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remuda.analysis.payoff import Numbers
from remuda.errors import UsageError
from remuda.types import Bools

LEAST = 10
"""Returns that a policy is judged by, at least: of few returns that happen to be equal the
deviation says nothing."""


@dataclass(frozen=True)
class Fitness:
    """Means and standard errors of P policies in D objectives; a policy with NaN is not judged.

    Attributes:
        names: of the policies.
        means: [P, D].
        errors: [P, D] standard errors of the means; 0: the mean is known.
        freedom: [P, D] degrees of freedom that the errors have; infinite: errors are known.
        maximise: by objective, whether more is better.
        together: [P, P, D] how strongly the means of two policies may be correlated, 0 to 1, since
            they come in part from the same games; None: not at all.
    """

    names: tuple[str, ...]
    means: Numbers = field(repr=False)
    errors: Numbers = field(repr=False)
    freedom: Numbers = field(repr=False)
    maximise: tuple[bool, ...] = (True,)
    together: Numbers | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit.

        Raises:
            UsageError: shapes differ, a name stands twice, or an error is negative.
        """
        shape = (len(self.names), len(self.maximise))
        for what in ("means", "errors", "freedom"):
            found = getattr(self, what).shape
            if found != shape:
                raise UsageError(f"fitness: {what} are {found}; they must be {shape}")
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise UsageError(f"fitness: {twice[0]} stands twice among the policies")
        if self.together is not None and self.together.shape != (shape[0], *shape):
            raise UsageError(
                f"fitness: together is {self.together.shape}; it must be {(shape[0], *shape)}"
            )
        if (self.errors < 0.0).any():
            raise UsageError("fitness: a standard error is negative")

    @classmethod
    def of_samples(
        cls, samples: Mapping[str, npt.ArrayLike], least: int = LEAST, maximise: bool = True
    ) -> Fitness:
        """The fitness of policies by independent samples of each, such as recent returns.

        Args:
            samples: by policy, [n] each. One with fewer than `least`, or with one that is not
                finite, is not judged.
            least: how many a policy is judged by, 2 or more.
            maximise: whether more is better.

        Raises:
            UsageError: `least` is too small.
        """
        if least < 2:
            raise UsageError(f"least is {least}; a standard error takes 2 samples or more")
        rows = []
        for values in samples.values():
            found = np.asarray(values, np.float64).ravel()
            if len(found) < least or not np.isfinite(found).all():
                rows.append((np.nan, np.nan, np.nan))
            else:
                error = found.std(ddof=1) / np.sqrt(len(found))
                rows.append((found.mean(), error, len(found) - 1.0))
        means, errors, freedom = np.array(rows, np.float64).reshape(-1, 3).T[:, :, None]
        return cls(tuple(samples), means, errors, freedom, (maximise,))

    @classmethod
    def of_estimates(
        cls,
        names: Sequence[str],
        means: npt.ArrayLike,
        errors: npt.ArrayLike,
        maximise: bool = True,
    ) -> Fitness:
        """The fitness of policies by means [P] with known standard errors [P], such as ratings."""
        found = np.asarray(means, np.float64)[:, None]
        whole = np.full(found.shape, np.inf)
        spread = np.asarray(errors, np.float64)[:, None]
        return cls(tuple(names), found, spread, whole, (maximise,))

    @classmethod
    def joined(cls, objectives: Sequence[Fitness]) -> Fitness:
        """Several objectives of the same policies as one fitness.

        Raises:
            UsageError: there are none, or they are of unlike policies.
        """
        if not objectives or any(each.names != objectives[0].names for each in objectives):
            raise UsageError("fitness: objectives must be of the same policies, in one order")
        return cls(
            objectives[0].names,
            np.concatenate([each.means for each in objectives], 1),
            np.concatenate([each.errors for each in objectives], 1),
            np.concatenate([each.freedom for each in objectives], 1),
            tuple(flag for each in objectives for flag in each.maximise),
        )

    @property
    def judged(self) -> Bools:
        """[P]: whether a policy has a mean and an error in every objective."""
        known = np.isfinite(self.means) & np.isfinite(self.errors) & (self.freedom > 0.0)
        return np.asarray(known.all(1))

    def p_value(self, better: int, worse: int, objective: int = 0) -> float:
        """How probable so great a difference is where `better` is not better: one-sided.

        Welch 1947, "The generalization of Student's problem when several different population
        variances are involved", with the degrees of freedom of Satterthwaite 1946. Of known means
        it is 0 or 1. What one wins of a game the other may lose, so where means come from the same
        games, the error of their difference is taken as great as it may be: as if all luck that
        they share were opposite.
        """
        from scipy import special  # late: a run in which nothing evolves imports this file too

        pair = [better, worse]
        one, other = self.means[pair, objective].tolist()
        errors, freedoms = self.errors[pair, objective].tolist(), self.freedom[pair, objective]
        difference = one - other if self.maximise[objective] else other - one
        scale = max(errors)
        if scale == 0.0:
            return 0.0 if difference > 0.0 else 1.0
        squares = [(error / scale) ** 2 for error in errors]  # so that none is too small a number
        shared = 0.0 if self.together is None else float(self.together[better, worse, objective])
        at_most = sum(squares) + 2.0 * shared * math.sqrt(squares[0] * squares[1])
        ratio = difference / scale / math.sqrt(at_most)
        doubt = sum(s**2 / freedom for s, freedom in zip(squares, freedoms.tolist(), strict=True))
        if doubt == 0.0:
            return float(special.ndtr(-ratio))
        return float(special.stdtr(sum(squares) ** 2 / doubt, -ratio))
