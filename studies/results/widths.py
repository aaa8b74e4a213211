"""Which interval of a token ratio r is narrow enough to claim the ratio."""
import math

WIDEST = 0.08  # half-width of ln r


def half_width(low, high):
    return math.log(high / low) / 2 if low > 0 else math.inf


def is_wide(low, high):
    return half_width(low, high) > WIDEST


def mark(interval, space=" "):
    """What follows an interval (low, high) on a page: " *wide*" where it is too wide to claim the ratio."""
    return f"{space}*wide*" if interval and is_wide(*interval) else ""
