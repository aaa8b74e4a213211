"""QwixProvider: fp4lab.jax.dense in the linears of a flax model, by qwix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

try:
    import qwix
    from qwix._src.utils import flax_util
except ImportError as error:
    raise ImportError(f"fp4lab.jax.QwixProvider needs qwix and flax: pip install qwix ({error})") from error

from . import RECIPES, dense


def _front(array: jax.Array, axes: Sequence[int]) -> tuple[jax.Array, tuple[int, ...]]:
    """`array` as a matrix (product of `axes`, all others in their order), and the sizes of these others."""
    others = [axis for axis in range(array.ndim) if axis not in axes]
    sizes = tuple(array.shape[axis] for axis in others)
    return array.transpose(*axes, *others).reshape(-1, math.prod(sizes)), sizes


class QwixProvider(qwix.QuantizationProvider):
    """Products of an activation and a weight become fp4lab.jax.dense: ``qwix.quantize_model(model, provider, x)``.

    All three products of such a linear are quantized by the recipe; products of two activations (attention) and
    those that no rule names stay as they are. Each use of stochastic rounding draws four words from the stream
    `stochastic_rounding`: an NNX model has it after ``model.set_attributes(qwix_rngs=nnx.Rngs(stochastic_rounding=0))``,
    a linen model takes it in ``apply(..., rngs={"stochastic_rounding": key})``.

    rules: qwix.QuantizationRule with a module_path (and op_names), no types; None: every linear.
        ``"(?!lm_head).*"`` leaves a module out.
    recipe: a name of fp4lab.jax.RECIPES.
    stochastic: False rounds gradients to nearest even and needs no stream.

    Raises ValueError for a recipe that is not in the table, for a rule with types, and, when the model is called,
    for a linear whose rows, inputs or outputs are no multiples of 16.
    """

    def __init__(
        self,
        rules: Sequence[qwix.QuantizationRule] | None = None,
        *,
        recipe: str = "te_nvfp4",
        stochastic: bool = True,
        **options: Any,
    ) -> None:
        if recipe not in RECIPES:
            raise ValueError(f"fp4lab.jax: recipe {recipe!r} is none of {sorted(RECIPES)}")
        rules = [qwix.QuantizationRule()] if rules is None else list(rules)
        for rule in rules:
            if rule.weight_qtype is not None or rule.act_qtype is not None:
                raise ValueError(
                    f"fp4lab.jax: the recipe has the types: leave them out of the rule for {rule.module_path!r}"
                )
        super().__init__(rules, **options)
        self._rht = RECIPES[recipe]
        self._stochastic = stochastic

    def _dense(self, x: jax.Array, kernel: jax.Array, path: str) -> jax.Array:
        """x (rows, in) times kernel (in, out)."""
        if any(size % 16 for size in (*x.shape, kernel.shape[1])):
            raise ValueError(
                f"fp4lab.jax: module {path!r} multiplies {x.shape} and {kernel.shape}: all sizes must be multiples "
                "of 16; leave it out by a rule"
            )
        words = None
        if self._stochastic:
            words = jax.random.bits(flax_util.make_rng("stochastic_rounding"), (4,), jnp.uint32)
        return dense(x, kernel, rng_state=words, rht=self._rht)

    def _product(self, lhs: jax.Array, rhs: jax.Array, dimension_numbers: Any, dtype: Any) -> jax.Array | None:
        """The product by fp4lab, or None where it is none of an activation and a weight."""
        (of_lhs, of_rhs), (batch, _) = dimension_numbers
        kernel_first = False
        if batch or flax_util.find_param(rhs) is None:
            kernel_first = not batch and flax_util.find_param(lhs) is not None
            if not kernel_first:
                return None
        left, left_sizes = _front(lhs, of_lhs)
        right, right_sizes = _front(rhs, of_rhs)
        path = "/".join(map(str, flax_util.get_current_module_path()))
        if kernel_first:
            y = self._dense(right.T, left, path).T
        else:
            y = self._dense(left.T, right, path)
        return y.reshape(*left_sizes, *right_sizes).astype(dtype or jnp.result_type(lhs, rhs))

    def dot_general(
        self,
        lhs: jax.Array,
        rhs: jax.Array,
        dimension_numbers: Any,
        precision: Any = None,
        preferred_element_type: Any = None,
        **options: Any,
    ) -> jax.Array:
        rule, _ = self._get_current_rule_and_op_id("dot_general")
        if rule is not None:
            y = self._product(lhs, rhs, dimension_numbers, preferred_element_type)
            if y is not None:
                return y
        return jax.lax.dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, **options)

    def einsum(self, text: str, *operands: jax.Array, **options: Any) -> jax.Array:
        rule, _ = self._get_current_rule_and_op_id("einsum")
        if rule is None or len(operands) != 2:
            return jnp.einsum(text, *operands, **options)
        plain = options.pop("_dot_general", jax.lax.dot_general)

        def dot_general(
            lhs: jax.Array, rhs: jax.Array, numbers: Any, precision: Any = None, preferred_element_type: Any = None,
            **rest: Any,
        ) -> jax.Array:  # fmt: skip
            y = self._product(lhs, rhs, numbers, preferred_element_type)
            return plain(lhs, rhs, numbers, precision, preferred_element_type, **rest) if y is None else y

        with jax.disable_jit():  # einsum is a jitted function: its operands would be no parameters any more
            return jnp.einsum(text, *operands, _dot_general=dot_general, **options)

    def get_intercept_map(self) -> dict[str, Any]:
        return super().get_intercept_map() | {
            "jax.lax.dot_general": self.dot_general,
            "jax.numpy.einsum": self.einsum,
        }
