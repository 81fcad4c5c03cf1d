"""Random numbers inside compiled games: a small generator per copy.

The state of a generator is one 64-bit word; `streams`, [num_envs] uint64, contains the states of
all copies. The generator is SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom
number generators"): a hash of a counter that grows by a constant stride.
"""

import math

import numpy as np

from remuda.system.kernels import njit
from remuda.types import Array

_STRIDE = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53


@njit(cache=True)
def _scramble(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> _30)) * _FACTOR_1
    word = (word ^ (word >> _27)) * _FACTOR_2
    return word ^ (word >> _31)


@njit(cache=True)
def seed_stream(streams: Array, env: int, seed: int) -> None:
    """Seed the generator of one copy with an int64."""
    # Scrambling makes neighbouring seeds start far apart in the counter's cycle.
    streams[env] = _scramble(np.uint64(seed))


@njit(cache=True)
def uniform(streams: Array, env: int) -> float:
    """Draw a number, uniform in [0, 1), with 53 random bits."""
    streams[env] += _STRIDE
    return (_scramble(streams[env]) >> _11) * _UNIT


@njit(cache=True)
def below(streams: Array, env: int, n: int) -> int:
    """Draw an integer, uniform in 0..n-1."""
    return int(uniform(streams, env) * n)


@njit(cache=True, error_model="numpy")
def misses(streams: Array, env: int, log_miss: float) -> float:
    """Draw the number of misses before the next hit; a trial misses with probability exp(log_miss).

    The result is a float because it is infinite if nothing ever hits (log_miss = 0).
    """
    # The number of misses is at least k with probability exp(log_miss)^k, so its distribution
    # inverts to floor(log(u) / log_miss); 1 - uniform is in (0, 1], which keeps log finite.
    return float(np.floor(math.log(1.0 - uniform(streams, env)) / log_miss))


def log_miss(probability: float) -> float:
    """Return the logarithm of the probability of a miss, for `misses`."""
    return math.log1p(-probability) if probability < 1 else -math.inf
