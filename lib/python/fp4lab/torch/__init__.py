"""NVFP4 and MXFP4 for PyTorch on the CPU, computed by libfp4lab: operators, a linear layer with the
three products of any training recipe, and what quantization does to a model of one's own: `observe`
says what it does to each operand, `attribute` which of them cost how much loss.

Importing the module registers the operators torch.ops.fp4lab.{quantize, dequantize, qdq, amax, rht,
scaled_mm, nvfp4_quantize, mxfp4_quantize, linear, linear_backward}. They take tensors of the CPU,
run under torch.compile and use torch.get_num_threads() threads; no byte depends on that number.
"""

try:
    import torch as _torch
except ImportError as _error:
    raise ImportError("fp4lab.torch needs PyTorch: pip install 'fp4lab[torch]'") from _error
if not hasattr(_torch.library, "custom_op"):
    raise ImportError(f"fp4lab.torch needs PyTorch 2.4 or newer, not {_torch.__version__}")

from ._attribute import Attribution, Share, attribute  # noqa: E402
from ._convert import convert  # noqa: E402
from ._linear import Linear, set_step  # noqa: E402
from ._observe import Observer, observe  # noqa: E402
from ._ops import amax, qdq, rht  # noqa: E402
from ._quantized import QTensor, quantize, scaled_mm  # noqa: E402
from ._scaled_mm import enable_scaled_mm_on_cpu  # noqa: E402
from ._te import te_quantizer_factory  # noqa: E402
from ._torchao import enable_torchao_training_on_cpu  # noqa: E402

__all__ = [
    "Attribution",
    "Linear",
    "Observer",
    "QTensor",
    "Share",
    "amax",
    "attribute",
    "convert",
    "enable_scaled_mm_on_cpu",
    "enable_torchao_training_on_cpu",
    "observe",
    "qdq",
    "quantize",
    "rht",
    "scaled_mm",
    "set_step",
    "te_quantizer_factory",
]
