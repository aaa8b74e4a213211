"""The noise of seeds in a league, pooled over its recipes.

Three to five seeds of one recipe say little of its noise, but a league has many recipes. In each pool of recipes the
losses are fitted by loss = recipe + seed; the rest has one standard deviation for the pool. The difference of two
recipes over n common seeds has the variance (a^2 + b^2 + c^2) / n: a and b are the standard deviations of their pools,
and c, 0 within a pool, is that of what the seeds do to one pool and not to the other. Intervals are Student's, with
Satterthwaite's degrees of freedom. A pool of one recipe has no known noise.
"""
import math

import numpy as np
from scipy import stats


def distinct(losses):
    """Without recipes whose losses another recipe has too: the same computation under two names."""
    return list({tuple(sorted(of_seed.items())): arm for arm, of_seed in reversed(losses.items())}.values())


class Pool:
    """The fit of losses[recipe][seed] of some recipes, two at least: `deviation` of the rest with `freedom` degrees,
    `rest`, seeds[seed], whose mean is 0, and runs[seed], how many recipes have the seed."""

    def __init__(self, losses):
        arms, seeds = sorted(losses), sorted({seed for of_seed in losses.values() for seed in of_seed})
        runs = [(arm, seed) for arm in arms for seed in losses[arm]]
        places = np.zeros((len(runs), len(arms) + len(seeds)))
        for i, (arm, seed) in enumerate(runs):
            places[i, arms.index(arm)] = places[i, len(arms) + seeds.index(seed)] = 1
        values = np.array([losses[arm][seed] for arm, seed in runs])
        fit, _, rank, _ = np.linalg.lstsq(places, values, rcond=None)
        self.rest = values - places @ fit
        self.freedom = len(runs) - int(rank)
        self.deviation = math.sqrt((self.rest @ self.rest) / self.freedom)
        effects = fit[len(arms):] - fit[len(arms):].mean()
        self.seeds, self.recipes = dict(zip(seeds, effects)), len(arms)
        self.runs = {seed: sum(seed in losses[arm] for arm in arms) for seed in seeds}

    def facts(self):
        """For a page; normal_p: of Shapiro and Wilk's test of the rest."""
        return {"recipes": self.recipes, "deviation": self.deviation, "degrees_of_freedom": self.freedom,
                "normal_p": float(stats.shapiro(self.rest).pvalue)}


class Noise:
    """pool_of(recipe) names a recipe's pool, None for recipes whose noise is not known."""

    def __init__(self, losses, pool_of):
        members = {}
        for arm in distinct(losses):
            members.setdefault(pool_of(arm), {})[arm] = losses[arm]
        self.pools = {name: Pool(own) for name, own in members.items() if name is not None and len(own) > 1}
        self.pool_of = pool_of

    def between(self, a, b):
        """The standard deviation over seeds of what they do to pool a and not to pool b, and its degrees of freedom."""
        a, b = self.pools[a], self.pools[b]
        seeds = sorted(a.seeds.keys() & b.seeds.keys())
        if len(seeds) < 2:
            return 0.0, 1
        observed = np.var([a.seeds[s] - b.seeds[s] for s in seeds], ddof=1)
        noise = np.mean([sum(pool.deviation ** 2 / pool.runs[s] for pool in (a, b)) for s in seeds])
        return math.sqrt(max(0.0, observed - noise)), len(seeds) - 1

    def variance_of_one_seed(self, a, b):
        """The variance of the difference of a recipe of pool a and one of pool b in one seed, and its degrees of
        freedom."""
        own = self.pools[a]
        parts = [(2 * own.deviation ** 2, own.freedom)]
        if a != b:
            other, (deviation, freedom) = self.pools[b], self.between(a, b)
            parts = [(own.deviation ** 2, own.freedom), (other.deviation ** 2, other.freedom),
                     (deviation ** 2, freedom)]
        variance = sum(v for v, _ in parts)
        return variance, variance ** 2 / sum(v ** 2 / f for v, f in parts)

    def one_seed(self, a, b):
        """The 95 % half-width of that difference."""
        variance, freedom = self.variance_of_one_seed(a, b)
        return float(stats.t.ppf(0.975, freedom)) * math.sqrt(variance)

    def half_width(self, a, b, seeds):
        """The 95 % half-width of the mean difference of two recipes over so many seeds; None where it is not known."""
        pools = self.pool_of(a), self.pool_of(b)
        return self.one_seed(*pools) / math.sqrt(seeds) if all(p in self.pools for p in pools) else None

    def facts(self):
        names = sorted(self.pools)
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i:]]
        return {"pools": {name: self.pools[name].facts() for name in names},
                "half_width_of_one_seed": {f"{a}, {b}": self.one_seed(a, b) for a, b in pairs}}
