"""Checks of user-defined losses: torch would silently broadcast most wrong shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from remuda.errors import ContractError
from remuda.policies.algorithms.autograd import Losses, Minibatch


def checked(algorithm: str, losses: Losses) -> Losses:
    """Wrap `RolloutAlgorithm.losses` to raise `ContractError` if its result is wrong."""

    def found_of(rows: Minibatch) -> tuple[Tensor, Tensor]:
        found, wanted = losses(rows), [*rows.values.shape]
        pair = isinstance(found, tuple | list) and len(found) == 2
        if not pair or any(_shape(part) != wanted for part in found):
            raise ContractError(
                f"policy.algorithm {algorithm}: losses returned {_described(found)}; for "
                f"{wanted[0]} policies with {wanted[1]} rows each it must return the policy loss "
                f"and the value loss, each a tensor {wanted}"
            )
        return found

    return found_of


def check_loss(algorithm: str, found: object, samples: Sequence[int]) -> None:
    """Raise ContractError if `TransitionAlgorithm.loss` returned wrong shapes or no gradient."""
    wanted = [*samples]
    parts = found if isinstance(found, tuple | list) else (found,)
    loss, value, error = (*parts, None, None, None)[:3]
    # Values are metrics and may have more axes; errors must have one number per sample.
    has_values = isinstance(value, Tensor) and value.dim() > 1 and len(value) == wanted[0]
    by_sample = error is None or (isinstance(error, Tensor) and error.numel() == prod(wanted))
    if len(parts) not in (2, 3) or _shape(loss) != wanted or not (has_values and by_sample):
        raise ContractError(
            f"policy.algorithm {algorithm}: loss returned {_described(found)}; for {wanted[0]} "
            f"policies with {wanted[1]} samples each it must return their losses, a tensor "
            f"{wanted}, their action values, [{wanted[0]}, {wanted[1]}, ...], and optionally their "
            "errors, with the shape of the losses"
        )
    if not (isinstance(loss, Tensor) and loss.requires_grad):
        raise ContractError(
            f"policy.algorithm {algorithm}: the returned loss depends on no weight, so nothing can "
            "be learned; compute it from the outputs of `self.head`, outside torch.no_grad and "
            "without detach"
        )


def _shape(part: object) -> list[int]:
    return [*part.shape] if isinstance(part, Tensor) else [-1]


def _described(found: object) -> str:
    """Describe what was returned, as `a tensor [1, 64] and float`."""
    parts = found if isinstance(found, tuple | list) else (found,)
    descriptions = [
        f"a tensor {_shape(part)}" if isinstance(part, Tensor) else type(part).__name__
        for part in parts
    ]
    return " and ".join(descriptions) or "nothing"
