"""Tests of several differences together: Student's t of whole degrees of freedom, Holm's method; and rank correlation."""
import math
import statistics


def student_above(t, degrees):
    """P(T > t) with a whole number of degrees of freedom, by the finite series of Abramowitz and Stegun, 26.7.3-4."""
    theta = math.atan(t / math.sqrt(degrees))
    cos2 = math.cos(theta) ** 2
    odd = degrees % 2 == 1
    term = total = (0.0 if degrees == 1 else math.cos(theta)) if odd else 1.0
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= (k - 1) / k * cos2
        total += term
    inside = 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
    return (1 - inside) / 2


def student_quantile(p, degrees):
    """The t below which lies the probability p > 1/2, by bisection."""
    low, high = 0.0, 1.0
    while student_above(high, degrees) > 1 - p:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if student_above(middle, degrees) > 1 - p else (low, middle)
    return high


def two_sided(mean, half_width, degrees, confidence=0.95):
    """The p of no difference, from a t interval."""
    if half_width == 0:
        return 0.0 if mean else 1.0
    return 2 * student_above(abs(mean) / half_width * student_quantile((1 + confidence) / 2, degrees), degrees)


def holm_kept(p, level=0.05):
    """Which of the p values hold at a level when all are looked at together."""
    kept = [False] * len(p)
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if not p[i] <= level / (len(p) - rank):
            break
        kept[i] = True
    return kept


def ranks(values):
    """From 1; equal values have their mean rank, and None is after all numbers."""
    keys = [(value is None, value or 0.0) for value in values]
    return [sum(other < key for other in keys) + (keys.count(key) + 1) / 2 for key in keys]


def spearman(first, second):
    """The rank correlation of two lists."""
    return statistics.correlation(ranks(first), ranks(second))
