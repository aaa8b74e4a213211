"""The shares of players in a difference: leave-one-in, leave-one-out, Shapley values, intervals.

A coalition is an integer whose bit i says whether player i is in it. Sums are exact: values are binary
fractions, and so are their differences until a mean is rounded once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from fractions import Fraction

from .. import _core

EXACT_PLAYERS = 16  # at most, for all coalitions: 65,536 values


def leave_one(players: int) -> list[int]:
    """The coalitions of leave-one-in and leave-one-out."""
    full = (1 << players) - 1
    return [1 << i for i in range(players)] + [full ^ (1 << i) for i in range(players)]


def orders(players: int, count: int, seed: str) -> list[list[int]]:
    """Random orders of the players, each odd one the reverse of the one before it."""
    generator = random.Random(seed)
    made: list[list[int]] = []
    for i in range(count):
        if i % 2:
            made.append(made[-1][::-1])
        else:
            order = list(range(players))
            generator.shuffle(order)
            made.append(order)
    return made


def prefixes(order: Sequence[int]) -> list[int]:
    """The coalitions in which players become members, from none to all."""
    found = [0]
    for player in order:
        found.append(found[-1] | 1 << player)
    return found


def needed(players: int, leaves: bool, sampled: Iterable[Sequence[int]], exact: bool) -> list[int]:
    """The coalitions whose values are needed, each once; none and all come first."""
    found = [0, (1 << players) - 1]
    if leaves:
        found += leave_one(players)
    for order in sampled:
        found += prefixes(order)
    if exact:
        found += range(1 << players)
    return list(dict.fromkeys(found))


def sampled_shapley(values: dict[int, float], sampled: Sequence[Sequence[int]]) -> list[Fraction]:
    """The mean over orders of what each player adds. The sum is values[all] - values[none], exactly."""
    shares = [Fraction(0)] * len(sampled[0])
    for order in sampled:
        for player, before, after in zip(order, prefixes(order), prefixes(order)[1:]):
            shares[player] += Fraction(values[after]) - Fraction(values[before])
    return [share / len(sampled) for share in shares]


def exact_shapley(values: dict[int, float], players: int) -> list[Fraction]:
    """The mean over all orders."""
    factorial = math.factorial
    shares = [Fraction(0)] * players
    for coalition in range(1 << players):
        size = coalition.bit_count()
        weight = Fraction(factorial(size) * factorial(max(players - 1 - size, 0)), factorial(players))
        for player in range(players):
            if not coalition >> player & 1:
                joined = Fraction(values[coalition | 1 << player])
                shares[player] += weight * (joined - Fraction(values[coalition]))
    return shares


def mean_and_interval(
    numbers: Sequence[Fraction], confidence: float
) -> tuple[float, tuple[float, float] | None]:
    """The mean, and Student's t interval of it; None for fewer than two numbers."""
    n = len(numbers)
    mean = sum(numbers, Fraction(0)) / n
    if n < 2:
        return float(mean), None
    squares = sum(((x - mean) ** 2 for x in numbers), Fraction(0))
    error = math.sqrt(float(squares / (n * (n - 1))))
    half = error * _core.student_quantile(0.5 + confidence / 2, n - 1)
    return float(mean), (float(mean) - half, float(mean) + half)
