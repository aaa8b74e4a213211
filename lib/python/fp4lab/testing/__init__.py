"""Assertions on kernels: numpy alone, for any callable that returns arrays of the CPU.

>>> import numpy as np, fp4lab, fp4lab.testing
>>> def my_kernel(x):
...     q = fp4lab.quantize(x, "nvfp4.te")  # stands for a kernel of yours
...     return q.data, q.scale_inv, q.amax
>>> fp4lab.testing.assert_kernel(my_kernel, "nvfp4.te").accepted
True
"""

from ._attention import assert_attention
from ._bytes import assert_matches, assert_same_bytes
from ._generated import GeneratedReport, assert_generated, judge_generated
from ._grouped import assert_grouped
from ._kernel import KernelReport, assert_kernel, assert_stochastic
from ._product import assert_product
from ._wrong import WrongKernel, wrong_kernels

__all__ = [
    "GeneratedReport", "KernelReport", "WrongKernel", "assert_attention", "assert_generated", "assert_grouped",
    "assert_kernel", "assert_matches", "assert_product", "assert_same_bytes", "assert_stochastic", "judge_generated",
    "wrong_kernels",
]  # fmt: skip
