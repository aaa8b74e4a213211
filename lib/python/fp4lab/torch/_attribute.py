"""attribute: which linears and operands of a model cost how much loss."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from torch import Tensor, nn

from .. import __version__, _core, _ieee
from .._arguments import did_you_mean, integer, probability, real
from . import _evaluate, _games, _plan, _recipes
from ._recipes import RecipeLike

BY = ("layer", "operand", "kind")


@dataclass(frozen=True)
class Share:
    """What a player, a part of the model's quantized operands, has to do with the whole difference.

    Attributes:
        player: "blocks.0.mlp.up", or "blocks.0.mlp.up.fprop.input" by operands.
        linears, operands: how many linears it is in, and how many of their operands it is.
        leave_one_in: what the player adds where nothing else is quantized.
        leave_one_out: what it adds where everything else is.
        shapley: its Shapley value; None where it was not asked for.
        leave_one_in_interval, leave_one_out_interval, shapley_interval: Student's t over batches;
            None for one batch.
    """

    player: str
    linears: int
    operands: int
    leave_one_in: float | None = None
    leave_one_in_interval: tuple[float, float] | None = None
    leave_one_out: float | None = None
    leave_one_out_interval: tuple[float, float] | None = None
    shapley: float | None = None
    shapley_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Attribution:
    """The result of `attribute`.

    Attributes:
        measure, by, recipe, confidence, seed, batches: what was asked.
        without, with_all: the mean of the measure over batches, nothing and everything quantized.
        difference, difference_interval: with_all - without, and Student's t interval over batches.
        shares: a Share for each player, the costliest first: by Shapley value where there is one, or
            else by leave-one-in. Shapley values sum to the difference, up to the rounding of each.
        forward_passes, backward_passes: what it took.
    """

    measure: str
    by: str
    recipe: str
    confidence: float
    seed: int
    batches: int
    without: float
    with_all: float
    difference: float
    difference_interval: tuple[float, float] | None
    shares: tuple[Share, ...] = field(repr=False)
    forward_passes: int
    backward_passes: int

    def __getitem__(self, player: str) -> Share:
        for share in self.shares:
            if share.player == player:
                return share
        raise KeyError(player)

    def document(self) -> dict[str, Any]:
        """All of it as a dict that JSON holds."""
        return {"schema": "fp4lab.torch.attribution/1", "fp4lab": __version__, **asdict(self)}

    def table(self, most: int | None = None) -> str:
        """The shares as text: the `most` costliest, or all."""
        keys = [k for k in ("leave_one_in", "leave_one_out", "shapley") if getattr(self.shares[0], k) is not None]
        lines = [["player", *(k.replace("_", "-") for k in keys)]]
        for share in self.shares[:most]:
            lines.append([share.player, *(_cell(share, key) for key in keys)])
        whole = _number(self.difference, self.difference_interval)
        lines.append(["whole difference", whole, *[""] * (len(keys) - 1)])
        widths = [max(map(len, column)) for column in zip(*lines)]
        text = "\n".join(
            "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
            for line in lines
        )
        return (
            f"{self.measure} of {self.batches} batches: {self.without:.6g} without quantization, "
            f"{self.with_all:.6g} under {self.recipe}; {self.forward_passes} forward passes\n{text}"
        )

    def __str__(self) -> str:
        return self.table(20)


def _number(value: float, interval: tuple[float, float] | None) -> str:
    return f"{value:+.3g}" + (f" [{interval[0]:+.3g}, {interval[1]:+.3g}]" if interval else "")


def _cell(share: Share, key: str) -> str:
    return _number(getattr(share, key), getattr(share, key + "_interval"))


@dataclass(frozen=True)
class _Player:
    name: str
    operands: Mapping[int, int]  # {place: bits}


def _players(
    evaluator: _evaluate.Evaluator, places: Sequence[_plan.Place], by: str | Mapping[str, Iterable[str]]
) -> list[_Player]:
    """The players, none of them without an operand."""
    found: dict[str, dict[int, int]] = {}
    groups = None if isinstance(by, str) else {n: (p,) if isinstance(p, str) else tuple(p) for n, p in by.items()}
    if groups is None and by not in BY:
        raise _core.Error(f'by: "{by}" is not known; {did_you_mean(str(by), BY)}, or a dict of globs')
    for i, place in enumerate(places):
        for bit, operand in evaluator.operands(i):
            if groups is not None:
                name = next((n for n, p in groups.items() if _recipes.matches(place.name, p)), "other")
            else:
                linear = place.name or "linear"  # the model may be one itself
                name = {"layer": linear, "operand": f"{linear}.{operand}", "kind": operand}[str(by)]
            member = found.setdefault(name, {})
            member[i] = member.get(i, 0) | bit
    if not found:
        raise ValueError("the recipe quantizes no operand that the measure depends on: there is nothing to attribute")
    return [_Player(n, operands) for n, operands in found.items()]


def _coalition(players: Sequence[_Player], members: int) -> dict[int, int]:
    """{place: bits} of the players in a coalition."""
    chosen: dict[int, int] = {}
    for i, player in enumerate(players):
        if members >> i & 1:
            for place, bits in player.operands.items():
                chosen[place] = chosen.get(place, 0) | bits
    return chosen


def _batches(batches: Any) -> list[Any]:
    """A tensor, a tuple or a dict is one batch; a list, or what else can be iterated, is several."""
    if isinstance(batches, (Tensor, tuple, dict)):
        return [batches]
    found = list(batches)
    if not found:
        raise ValueError("batches: there is none")
    # A DataLoader makes a list of pairs.
    return [tuple(b) if isinstance(b, list) else b for b in found]


class _Saved:
    """Values in a file, a line each, so that a call that was interrupted goes on."""

    def __init__(self, path: str | os.PathLike[str] | None, question: dict[str, Any]) -> None:
        self._path = None if path is None else os.fspath(path)
        self.values: dict[tuple[int, int], float] = {}
        if self._path is None:
            return
        key = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
        if not os.path.exists(self._path):
            self._append({"fp4lab.torch.attribute": key})
            return
        with open(self._path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        try:  # the last line may be half-written
            head, *rows = [json.loads(line) for line in lines[:-1]]
            known = head.get("fp4lab.torch.attribute")
            self.values = {(row["batch"], int(row["players"], 16)): row["value"] for row in rows}
        except (ValueError, KeyError, AttributeError, TypeError):
            known = None
        if known != key:
            raise _core.Error(f"{self._path}: has values of another question; name another file in save")
        if lines[-1]:
            with open(self._path, "r+", encoding="utf-8") as file:
                file.truncate(sum(len(line.encode()) + 1 for line in lines[:-1]))

    def _append(self, row: dict[str, Any]) -> None:
        with open(str(self._path), "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def add(self, batch: int, members: int, value: float) -> None:
        if self._path is not None and (batch, members) not in self.values:
            self._append({"batch": batch, "players": f"{members:x}", "value": value})

    def check(self, batch: int, value: float) -> None:
        """Raises fp4lab.Error if the value of nobody is not the one of the file."""
        known = self.values.get((batch, 0))
        if known is not None and known != value:
            raise _core.Error(
                f"{self._path}: batch {batch} has {known} without quantization, and now {value}: the model or the "
                "batch is another; name another file in save"
            )


def _shown(done: int, total: int) -> None:
    end = "\n" if done == total else "\r" if sys.stderr.isatty() else ""
    if end or done == 0:
        print(f"attribute: {done} of {total} values", end=end or "\n", file=sys.stderr, flush=True)


@_ieee.ieee
def attribute(
    model: nn.Module,
    batches: Any,
    loss_fn: _evaluate.LossFunction | None = None,
    recipe: RecipeLike | None = None,
    *,
    by: str | Mapping[str, Iterable[str]] = "layer",
    measure: str = "loss",
    leave_one: bool = True,
    shapley: int | str = 0,
    include: Iterable[str] = (),
    exclude: Iterable[str] | None = None,
    experts: Iterable[str] = _plan.EXPERTS,
    learning_rate: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
    save: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = False,
    max_passes: int | None = None,
) -> Attribution:
    """Which linears and operands of a model cost how much loss under a recipe.

    The difference between the model under the recipe and the same model with operands in BF16 is
    shared among players: linears, operands, or groups of them. Products add in the same order in
    both, and stochastic rounding has the same bits, so that quantization alone differs.

    With P players and B batches, leave-one-in and leave-one-out take B (2 P + 2) values; `shapley`
    orders add up to B (P - 1) each. A value is a forward pass for the loss, and a forward and a
    backward pass for the gradient_error; loss_after takes one forward pass more.

    The model is as it was when the call ends, by an error or Ctrl-C as well. While it lasts, the
    model is in evaluation mode.

    Args:
        model: any model, or one that convert has changed.
        batches: one batch (a tensor, a tuple or a dict), or a list or DataLoader of several.
        loss_fn: gives the loss of (model, batch) as a tensor. None: model(**batch).loss for dicts;
            for (inputs, targets) the cross entropy, or the mean squared error of real targets.
        recipe, include, exclude, experts: as convert has them. None: the recipes of a converted
            model.
        by: the players. "layer": each linear, or each stacked weight. "operand": each operand of
            each linear. "kind": each of the six operands, in all linears at once. Or a dict {name:
            globs} of groups of linears; those that none matches are "other".
        measure: "loss", which fprop's operands alone change; "gradient_error": |g - h| / |h| of the
            gradient of all parameters, h without quantization; "loss_after": the batch's loss without
            quantization after a step of gradient descent at `learning_rate`.
        leave_one: whether leave-one-in and leave-one-out are computed.
        shapley: a number of random orders of the players, each odd one the reverse of the one before
            it, drawn for each batch; "exact": all coalitions, of 16 players at most.
        confidence: of the intervals over batches.
        seed: of the orders and of all random bits.
        save: a file that keeps the values. A call that was interrupted goes on from it.
        progress: True: a line on stderr; or a function of (values done, all values).
        max_passes: forward passes above which the call is refused, with their number.

    Returns:
        An Attribution; print shows its table.

    Raises:
        ValueError: as convert; for losses that are not finite; for more than max_passes.
        fp4lab.Error: for recipes that change during the run or have delayed scaling.

    >>> import torch, fp4lab.torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    >>> batches = [(torch.randn(64, 64), torch.randint(8, (64,))) for _ in range(3)]
    >>> found = fp4lab.torch.attribute(model, batches, recipe="te_nvfp4", shapley="exact")
    >>> found.forward_passes, len(found.shares)
    (12, 2)
    >>> abs(sum(share.shapley for share in found.shares) - found.difference) < 1e-15
    True
    """
    kinds = {m.name: m for m in _evaluate.MEASURES}
    if measure not in kinds:
        raise _core.Error(f'measure: "{measure}" is not known; {did_you_mean(str(measure), kinds)}')
    kind = kinds[measure]
    learning_rate, confidence = real(learning_rate, "learning_rate"), probability(confidence, "confidence")
    if not 0 < confidence < 1:
        raise _core.Error(f"confidence: {confidence} is not between 0 and 1")
    if (measure == "loss_after") != (learning_rate > 0):
        raise _core.Error('learning_rate: it is the step of measure="loss_after", above 0; give both, or neither')
    seed = integer(seed, "seed", 0, 2**63 - 1)
    exact = shapley == "exact"
    count = 0 if exact else integer(shapley, "shapley", 0, 2**31)
    if recipe is None:
        places = _plan.own_places(model)
    else:
        places = _plan.plan(model, _recipes.as_recipe(recipe), include=include, exclude=exclude, experts=experts,
                            converted=True)  # fmt: skip
    evaluator = _evaluate.Evaluator(model, places, loss_fn or _evaluate.default_loss, kind, seed, recipe is None,
                                    learning_rate)  # fmt: skip
    players = _players(evaluator, places, by)
    n = len(players)
    if exact and n > _games.EXACT_PLAYERS:
        raise _core.Error(
            f'shapley: "exact" takes {_games.EXACT_PLAYERS} players at most, and there are {n}; give a number of orders'
        )
    if not leave_one and not exact and not count:
        raise _core.Error("leave_one: without it, ask for shapley")
    several = _batches(batches)
    orders = [_games.orders(n, count, f"{seed}:{i}") for i in range(len(several))]
    coalitions = [_games.needed(n, leave_one, sampled, exact) for sampled in orders]
    total = sum(map(len, coalitions))
    if max_passes is not None and total * kind.forwards > max_passes:
        raise ValueError(
            f"attribute: {total * kind.forwards} forward passes are needed, and max_passes is {max_passes}; give fewer "
            "batches, fewer orders of shapley, or larger players by `by`"
        )
    name = "own recipes" if recipe is None else _recipes.name_of(_recipes.as_recipe(recipe).resolved)
    question = {
        "players": [[p.name, sorted(p.operands.items())] for p in players],
        "recipes": [place.recipe.json for place in places],
        "measure": measure, "seed": seed, "learning_rate": learning_rate, "version": __version__,
    }  # fmt: skip
    saved = _Saved(save, question)
    report = _shown if progress is True else progress or (lambda done, total: None)
    values: list[dict[int, float]] = []
    computed = done = 0
    report(0, total)
    with evaluator.patched():
        for number, batch in enumerate(several):
            own: dict[int, float] = {}
            for members in coalitions[number]:
                known = saved.values.get((number, members)) if members else None
                if known is None:
                    evaluator.choose(_coalition(players, members))
                    known = evaluator.value(number, batch)
                    computed += 1
                    if not members:
                        saved.check(number, known)
                    saved.add(number, members, known)
                own[members] = known
                done += 1
                report(done, total)
            values.append(own)
    return _result(kind, by, name, confidence, seed, players, values, orders, leave_one, exact, computed)


def _result(kind, by, name, confidence, seed, players, values, orders, leave_one, exact, computed) -> Attribution:
    n, full = len(players), (1 << len(players)) - 1
    columns: dict[str, list[list[Fraction]]] = {}  # {key: [batch][player]}
    fraction = [{m: Fraction(v) for m, v in own.items()} for own in values]
    if leave_one:
        columns["leave_one_in"] = [[v[1 << i] - v[0] for i in range(n)] for v in fraction]
        columns["leave_one_out"] = [[v[full] - v[full ^ 1 << i] for i in range(n)] for v in fraction]
    if exact:
        columns["shapley"] = [_games.exact_shapley(own, n) for own in values]
    elif orders[0]:
        columns["shapley"] = [_games.sampled_shapley(own, o) for own, o in zip(values, orders)]
    shares = []
    for i, player in enumerate(players):
        numbers: dict[str, Any] = {}
        for key, rows in columns.items():
            mean, interval = _games.mean_and_interval([row[i] for row in rows], confidence)
            numbers |= {key: mean, key + "_interval": interval}
        operands = sum(bits.bit_count() for bits in player.operands.values())
        shares.append(Share(player.name, len(player.operands), operands, **numbers))
    order = "shapley" if "shapley" in columns else "leave_one_in"
    shares.sort(key=lambda share: -getattr(share, order))
    difference, interval = _games.mean_and_interval([v[full] - v[0] for v in fraction], confidence)
    mean = lambda members: float(sum(v[members] for v in fraction) / len(fraction))  # noqa: E731
    return Attribution(
        kind.name, by if isinstance(by, str) else "groups", name, confidence, seed, len(values), mean(0), mean(full),
        difference, interval, tuple(shares), computed * kind.forwards, computed * kind.backwards,
    )  # fmt: skip
