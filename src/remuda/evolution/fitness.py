"""The fitness of policies in one or several objectives, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remuda.errors import UsageError
from remuda.types import Bools, Numbers

LEAST = 10
"""Least returns to judge a policy by: the deviation of fewer may be 0 by chance."""


@dataclass(frozen=True)
class Fitness:
    """Means and standard errors of P policies in D objectives; a policy with NaN is not judged.

    Attributes:
        names: of the policies.
        means: [P, D].
        errors: [P, D] standard errors of the means; 0: the mean is known.
        freedom: [P, D] degrees of freedom that the errors have; infinite: errors are known.
        maximise: by objective, whether more is better.
        together: [P, P, D] bounds of the correlation of two policies' means, 0 to 1, from common
            games; None: independent.
    """

    names: tuple[str, ...]
    means: Numbers = field(repr=False)
    errors: Numbers = field(repr=False)
    freedom: Numbers = field(repr=False)
    maximise: tuple[bool, ...] = (True,)
    together: Numbers | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit."""
        shape = (len(self.names), len(self.maximise))
        for what in ("means", "errors", "freedom"):
            found = getattr(self, what).shape
            if found != shape:
                raise UsageError(f"fitness: {what} are {found}; they must be {shape}")
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise UsageError(f"fitness: {twice[0]} is named twice among the policies")
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
        """Return the fitness of policies from independent samples, such as recent returns.

        `samples`: by policy, [n] each. One with fewer than `least`, or with a non-finite one, is
        not judged.
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
        """Return the fitness from means [P] with known standard errors [P], such as ratings."""
        found = np.asarray(means, np.float64)[:, None]
        whole = np.full(found.shape, np.inf)
        spread = np.asarray(errors, np.float64)[:, None]
        return cls(tuple(names), found, spread, whole, (maximise,))

    @classmethod
    def joined(cls, objectives: Sequence[Fitness]) -> Fitness:
        """Return several objectives of the same policies as one fitness."""
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
        """Return the one-sided p-value of `better` being better.

        Welch 1947, "The generalization of Student's problem when several different population
        variances are involved", with the degrees of freedom of Satterthwaite 1946. Of known means
        it is 0 or 1. One's win may be the other's loss, so for means from common games the error of
        their difference is the largest possible: as if all shared luck were opposite.
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
