"""The innermost loop of matrix products, in vector instructions.

A tile (some rows, and some vectors of columns) stays in registers while its sums are computed. This
takes half the time of a compiled scalar loop. Each sum adds its products in order, so results do
not depend on the tile size.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _features() -> dict[str, bool]:
    try:
        return dict(llvmlite.binding.get_host_cpu_features())
    except RuntimeError:  # LLVM does not know this processor
        return {}


_FEATURES = _features()
_WIDE = bool(_FEATURES.get("avx512f"))
LANES = 16 if _WIDE else 8 if _FEATURES.get("avx") else 4  # numbers in a vector register
# whether there are 32 registers; else 16
MANY = _WIDE or platform.machine() in ("arm64", "aarch64")
ROWS = 14 if MANY else 6  # rows of the largest tile

# (maximum rows of a tile, maximum vectors of columns that then fit into the registers)
VECTORS = ((3, 8), (6, 4), (14, 2)) if MANY else ((2, 4), (6, 2))

FLOAT, WORD, INDEX = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, LANES)
BITS = ir.VectorType(ir.IntType(1), LANES)
NUMBERS = ir.VectorType(WORD, LANES)
POINTER, VECTOR_POINTER = FLOAT.as_pointer(), VECTOR.as_pointer()
FUSED = ("contract",)  # fused multiply-add if the CPU supports it


def most_vectors(rows: int) -> int:
    """Return the maximum number of vectors in a tile of `rows` rows."""
    return next(vectors for most, vectors in VECTORS if rows <= most)


def _kinds() -> list[tuple[int, int]]:
    counts = ((rows, vectors) for rows in range(1, ROWS + 1) for vectors in (1, 2, 4, 8))
    return [(rows, vectors) for rows, vectors in counts if vectors <= most_vectors(rows)]


def _tile(
    context: Any,  # noqa: ARG001
    rows: Any,  # up to `ROWS`
    vectors: Any,  # 1, 2, 4 or 8 of `LANES` columns, up to `most_vectors`
    a: Any,  # [rows, terms]
    a_row: Any,
    a_sum: Any,
    b: Any,  # [terms, columns]
    b_sum: Any,
    start: Any,  # [rows, columns]
    start_row: Any,  # 0: one row for all
    fresh: Any,  # 1: sums start at 0
    out: Any,  # [rows, columns]
    out_row: Any,
    terms: Any,  # number of terms in each run
    columns: Any,  # number of columns in the last vector
    runs: Any,  # number of runs in each sum
    a_run: Any,  # distance between runs
    b_run: Any,  # distance between runs
) -> Any:
    """Write a tile: out[m, n] = start[m, n] + sum over k of a[m, k] * b[k, n].

    All arguments are integers. Matrices are addresses of 32-bit floats; `_row` and `_sum` are
    distances in floats to the next row and to the next term of a sum. A sum has `runs` runs of
    `terms` terms each.
    """
    leading = (rows, vectors, a, a_row, a_sum, b, b_sum, start, start_row, fresh, out, out_row)
    trailing = (terms, columns, runs, a_run, b_run)
    return types.void(*(types.int64 for _ in (*leading, *trailing))), _choose


tile: Callable[..., None] = intrinsic(_tile)


def _choose(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
    rows, vectors, *rest = arguments
    end, none = builder.append_basic_block("end"), builder.append_basic_block("none")
    kind = builder.add(builder.mul(rows, ir.Constant(WORD, 16)), vectors)
    choice = builder.switch(kind, none)
    for some_rows, some_vectors in _kinds():
        block = builder.append_basic_block(f"tile_{some_rows}_{some_vectors}")
        choice.add_case(ir.Constant(WORD, some_rows * 16 + some_vectors), block)
        builder.position_at_end(block)
        builder.call(_function(builder.module, some_rows, some_vectors), rest)
        builder.branch(end)
    builder.position_at_end(none)
    builder.branch(end)
    builder.position_at_end(end)
    return context.get_dummy_value()


def _function(module: Any, rows: int, vectors: int) -> Any:
    name = f"remuda_tile_{rows}_{vectors}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD] * 15), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    _Tile(function, rows, vectors).write()
    return function


class _Tile:
    """The code of one tile size: a loop over the terms of a run, inside a loop over runs."""

    def __init__(self, function: Any, rows: int, vectors: int) -> None:
        self._function, self._rows, self._vectors = function, range(rows), range(vectors)
        names = ("entry", "run", "loop", "next", "done")
        self._entry, self._run, self._loop, self._next, self._done = (
            function.append_basic_block(name) for name in names
        )

    def write(self) -> None:
        a, a_row, a_sum, b, b_sum, start, start_row, fresh, out, out_row, *more = (
            self._function.args
        )
        terms, columns, runs, a_run, b_run = more
        build = ir.IRBuilder(self._entry)
        a, b, start, out = (build.inttoptr(each, POINTER) for each in (a, b, start, out))
        lanes = ir.Constant(NUMBERS, [_word(lane) for lane in range(LANES)])
        self._mask = build.icmp_signed("<", lanes, _spread(build, columns, NUMBERS))
        offsets = [build.mul(a_row, _word(row)) for row in self._rows]
        is_fresh = build.icmp_signed("!=", fresh, _word(0))
        sums = []
        for row in self._rows:
            place = build.gep(start, [build.mul(start_row, _word(row))])
            for vector in self._vectors:
                found = self._load(build, place, vector)
                sums.append(build.select(is_fresh, _zeros(), found))
        build.branch(self._run)
        build = ir.IRBuilder(self._run)
        number, a_here, b_here = (build.phi(kind) for kind in (WORD, POINTER, POINTER))
        running = [build.phi(VECTOR) for _ in sums]
        build.branch(self._loop)
        found = self._sum(a_here, offsets, a_sum, b_here, b_sum, terms, running)
        build = ir.IRBuilder(self._next)
        counted, after_a, after_b = (
            build.add(number, _word(1)),
            build.gep(a_here, [a_run]),
            build.gep(b_here, [b_run]),
        )
        build.cbranch(build.icmp_signed("<", counted, runs), self._run, self._done)
        phis = [number, a_here, b_here, *running]
        _follow(phis, self._entry, [_word(0), a, b, *sums])
        _follow(phis, self._next, [counted, after_a, after_b, *found])
        build = ir.IRBuilder(self._done)
        found_sums = iter(found)
        for row in self._rows:
            place = build.gep(out, [build.mul(out_row, _word(row))])
            for vector in self._vectors:
                self._store(build, next(found_sums), place, vector)
        build.ret_void()

    def _sum(
        self,
        a: Any,
        offsets: list[Any],
        a_sum: Any,
        b: Any,
        b_sum: Any,
        terms: Any,
        sums: list[Any],
    ) -> list[Any]:
        """Build the loop that adds one product to each sum, in the order of `write`."""
        build = ir.IRBuilder(self._loop)
        counted, at_a, at_b = (build.phi(kind) for kind in (WORD, POINTER, POINTER))
        running = [build.phi(VECTOR) for _ in sums]
        right = [self._load(build, at_b, vector) for vector in self._vectors]
        found: list[Any] = []
        for row in self._rows:
            left = _spread(build, build.load(build.gep(at_a, [offsets[row]])), VECTOR)
            for vector in self._vectors:
                product = build.fmul(left, right[vector], flags=FUSED)
                found.append(build.fadd(running[len(found)], product, flags=FUSED))
        more, after_a, after_b = (
            build.add(counted, _word(1)),
            build.gep(at_a, [a_sum]),
            build.gep(at_b, [b_sum]),
        )
        build.cbranch(build.icmp_signed("<", more, terms), self._loop, self._next)
        phis = [counted, at_a, at_b, *running]
        _follow(phis, self._run, [_word(0), a, b, *sums])
        _follow(phis, self._loop, [more, after_a, after_b, *found])
        return found

    def _load(self, build: Any, place: Any, vector: int) -> Any:
        """Load a vector of a row; the row's last vector is masked."""
        place = build.bitcast(build.gep(place, [_word(vector * LANES)]), VECTOR_POINTER)
        if vector < self._vectors[-1]:
            found = build.load(place)
            found.align = 4
            return found
        kind = ir.FunctionType(VECTOR, [VECTOR_POINTER, INDEX, BITS, VECTOR])
        call = self._masked("load", kind)
        return build.call(call, [place, ir.Constant(INDEX, 4), self._mask, _zeros()])

    def _store(self, build: Any, numbers: Any, place: Any, vector: int) -> None:
        place = build.bitcast(build.gep(place, [_word(vector * LANES)]), VECTOR_POINTER)
        if vector < self._vectors[-1]:
            build.store(numbers, place).align = 4
            return
        kind = ir.FunctionType(ir.VoidType(), [VECTOR, VECTOR_POINTER, INDEX, BITS])
        call = self._masked("store", kind)
        build.call(call, [numbers, place, ir.Constant(INDEX, 4), self._mask])

    def _masked(self, what: str, kind: Any) -> Any:
        name = f"llvm.masked.{what}.v{LANES}f32.p0"
        return cgutils.get_or_insert_function(self._function.module, kind, name)


def _follow(phis: list[Any], block: Any, values: list[Any]) -> None:
    """Set the values of phi nodes for a predecessor block."""
    for phi, value in zip(phis, values, strict=True):
        phi.add_incoming(value, block)


def _word(number: int) -> Any:
    return ir.Constant(WORD, number)


def _zeros() -> Any:
    return ir.Constant(VECTOR, [ir.Constant(FLOAT, 0.0)] * LANES)


def _spread(build: Any, number: Any, kind: Any) -> Any:
    nothing = ir.Constant(kind, ir.Undefined)
    first = build.insert_element(nothing, number, ir.Constant(INDEX, 0))
    zeros = ir.Constant(ir.VectorType(INDEX, LANES), [ir.Constant(INDEX, 0)] * LANES)
    return build.shuffle_vector(first, nothing, zeros)
