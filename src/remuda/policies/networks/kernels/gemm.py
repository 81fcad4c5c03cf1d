"""Matrix products of K policies on the CPU, single-threaded, in tiles of `llvm_tiles.py`.

Each sum adds its terms in order, so a row's result does not depend on its neighbours, its position
or the size of the product.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from remuda.policies.networks.kernels.llvm_tiles import LANES, ROWS, most_vectors, tile
from remuda.system.kernels import njit
from remuda.types import Integers

# number of terms that all tiles add before any of them adds the next terms, so that the factors
# that tiles share stay in the cache
TERMS = 256


PLAIN = (Tensor, nn.Parameter)  # other classes may have no memory or other semantics


def suits(*tensors: Tensor) -> bool:
    """Return whether these kernels, and not torch, should multiply these tensors."""
    if (
        torch.compiler.is_compiling()  # for an exported graph: checked first
        or torch.get_num_threads() > 1
        or in_transform()
        or torch._C._len_torch_dispatch_stack() > 0  # observers see only torch operations
        or torch._C._is_tracing()
        or torch.is_autocast_enabled("cpu")
        or forward_ad._current_level >= 0
    ):
        return False
    return all(
        type(x) in PLAIN and x.dtype is torch.float32 and x.device.type == "cpu" and x.numel() > 0
        for x in tensors
    )


def in_transform() -> bool:
    """Return whether a `torch.func` transform is active, whose tensors have no readable memory."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write out [K, B, O] = x [K, B, I] @ weight [K, I, O] + bias [K, 1, O]; rows contiguous."""
    if torch.get_num_threads() > 1:
        if bias is None:
            torch.bmm(x, weight, out=out)
        else:
            torch.baddbmm(bias, x, weight, out=out)
        return
    count, rows, inputs = x.shape
    gemm(
        count,
        rows,
        weight.shape[2],
        inputs,
        *(x.data_ptr(), x.stride(0), x.stride(1), 1),
        *(weight.data_ptr(), weight.stride(0), weight.stride(1)),
        *((0, 0, 0) if bias is None else (bias.data_ptr(), bias.stride(0), 0)),
        *(out.data_ptr(), out.stride(0), out.stride(1)),
    )


def add_products(x: Tensor, errors: Tensor, out: Tensor, fresh: bool = False) -> None:
    """Add x [K, B, I].mT @ errors [K, B, O] to out [K, I, O], or overwrite it if `fresh`."""
    if torch.get_num_threads() > 1:
        if fresh:
            torch.bmm(x.mT, errors, out=out)
        else:
            out.baddbmm_(x.mT, errors)
        return
    count, rows, inputs = x.shape
    at = out.data_ptr(), out.stride(0), out.stride(1)
    gemm(
        count,
        inputs,
        errors.shape[2],
        rows,
        *(x.data_ptr(), x.stride(0), 1, x.stride(1)),
        *(errors.data_ptr(), errors.stride(0), errors.stride(1)),
        *((0, 0, 0) if fresh else at),
        *at,
    )


@njit(cache=True, error_model="numpy", nogil=True)
def gemm(
    count: int,  # number of products
    rows: int,
    columns: int,
    terms: int,  # number of terms in each sum, at least 1
    a: int,  # [rows, terms]
    a_next: int,
    a_row: int,
    a_sum: int,
    b: int,  # [terms, columns]
    b_next: int,
    b_sum: int,
    start: int,  # [rows, columns], may be `out`; 0: sums start at 0
    start_next: int,
    start_row: int,  # 0: one row for all
    out: int,  # [rows, columns]
    out_next: int,
    out_row: int,
) -> None:
    """Write products: out[i, m, n] = start[i, m, n] + sum over k of a[i, m, k] * b[i, k, n].

    Matrices are addresses of 32-bit floats, so that one function serves all memory layouts. Columns
    are contiguous. `_next`, `_row` and `_sum` are distances in floats to the next matrix, row and
    term of a sum.
    """
    for i in range(count):
        at_a, at_b = a + 4 * i * a_next, b + 4 * i * b_next
        at_start, at_out = start + 4 * i * start_next, out + 4 * i * out_next
        whole = rows - rows % ROWS
        for term in range(0, terms, TERMS):
            now = min(TERMS, terms - term)
            fresh, from_, from_row = 0, at_out, out_row
            if term == 0:
                from_, from_row = at_start, start_row
                if start == 0:
                    fresh, from_, from_row = 1, at_out, out_row
            for part in range(2):  # full tiles, then the remaining rows
                begin, end = (0, whole) if part == 0 else (whole, rows)
                height = ROWS if part == 0 else rows - whole
                if begin == end:
                    continue
                column = 0
                while column < columns:
                    vectors = vectors_of(height, columns - column)
                    width = min(vectors * LANES, columns - column)
                    for row in range(begin, end, height):
                        tile(
                            height,
                            vectors,
                            at_a + 4 * (row * a_row + term * a_sum),
                            a_row,
                            a_sum,
                            at_b + 4 * (term * b_sum + column),
                            b_sum,
                            from_ + 4 * (row * from_row + column),
                            from_row,
                            fresh,
                            at_out + 4 * (row * out_row + column),
                            out_row,
                            now,
                            width - (vectors - 1) * LANES,
                            1,
                            0,
                            0,
                        )
                    column += width


MOST: Integers = np.array([0, *(most_vectors(rows) for rows in range(1, ROWS + 1))], np.int64)


@njit(cache=True)
def vectors_of(rows: int, columns: int) -> int:
    """Return the number of vectors in the widest tile of `rows` rows without empty vectors."""
    vectors = int(MOST[rows])
    while (vectors - 1) * LANES >= columns:
        vectors //= 2
    return vectors
