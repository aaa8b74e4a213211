"""auto-round without tuning: its NVFP4 as packed for export, and its MX formats."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..compare import Adapter, Answer, Exemption
from . import _places, _values
from ._torch import raw, tensor

_MODULE = "auto_round.data_type.nvfp"


def _blocks(t: Any, width: int) -> tuple[Any, Any, int]:
    """(rows of one block, what `_whole` takes to undo it): the package pads rows with zeros."""
    utils = importlib.import_module("auto_round.data_type.utils")
    return utils.reshape_pad_tensor_by_group_size(t, width)


def _whole(blocks: Any, shape: Any, pad: int) -> Any:
    utils = importlib.import_module("auto_round.data_type.utils")
    return utils.revert_tensor_by_pad(blocks, orig_shape=shape, pad_len=pad)


def _nvfp4(x: np.ndarray, bf16: bool) -> Answer:
    torch = importlib.import_module("torch")
    nvfp = importlib.import_module(_MODULE)
    t = tensor(x, bf16)
    number = nvfp.calculate_gparam(t)
    weight, scale, _ = nvfp.nv_fp4(t, global_scale=number)
    blocks, shape, pad = _blocks(weight, 16)  # the export packs the decoded weight
    decode = scale.reshape(blocks.shape[0], -1) * nvfp.get_reciprocal(number.reshape([1]))
    v = nvfp.cast_to_fp4((blocks.to(number.dtype) * nvfp.get_reciprocal(decode)).clamp_(-6.0, 6.0))
    values = _whole(v, shape, pad).float().numpy()
    scales = raw(scale.to(torch.float8_e4m3fn), x.shape[0])
    return Answer(_values.codes(values), scales, codes_undefined=np.isnan(values))


def _elements(scaled: Any, bits: int) -> np.ndarray:
    torch = importlib.import_module("torch")
    if bits == 8:
        return scaled.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    # pack_fp4_to_uint8: the nearest number of the table, the first one of a tie.
    linear = importlib.import_module("auto_round.export.export_to_autoround.qlinear_fp")
    table = torch.tensor(linear.FLOAT_TO_E2M1)
    code = torch.argmin(torch.abs(torch.abs(scaled).unsqueeze(-1) - table), dim=-1)
    return (code + (torch.signbit(scaled).to(torch.long) << 3)).to(torch.uint8).numpy()


def _mx(function: str, bits: int):  # noqa: ANN202
    def answer(x: np.ndarray, bf16: bool) -> Answer:
        torch = importlib.import_module("torch")
        mxfp = importlib.import_module("auto_round.data_type.mxfp")
        t = tensor(x, bf16)
        values, exponent, _ = getattr(mxfp, function)(t, bits=bits, group_size=32)
        exponent = exponent.reshape(-1, 1)
        blocks, shape, pad = _blocks(values, 32)
        scaled = _whole(blocks / 2**exponent, shape, pad)
        scales = (exponent + 127).clamp(0, 255).to(torch.uint8)
        undefined = np.isnan(values.numpy()).reshape(x.shape)
        codes = _elements(torch.nan_to_num(scaled), bits)
        return Answer(codes, raw(scales, x.shape[0]), codes_undefined=undefined)

    return answer


_NONFINITE = (
    Exemption("a maximum of Inf, NaN, or 1.75 * 2^127 and more, whose decoded value overflows",
              _places.from_power(0x7F600000)),
)  # fmt: skip
_NONFINITE_TENSOR = (
    Exemption("an amax of Inf or NaN: its packing is undefined", _places.nonfinite_tensor),
)


def _adapter(row: str, answer: Any, exemptions: tuple[Exemption, ...] = _NONFINITE) -> Adapter:
    return Adapter(row, "auto-round", _MODULE, "0.16", "0.16.1", answer, types=("float32",),
                   ragged=True, exemptions=exemptions)  # fmt: skip


ADAPTERS = (
    _adapter("nvfp4.auto-round", _nvfp4, _NONFINITE_TENSOR),
    _adapter("mxfp4.auto-round", _mx("quant_mx", 4)),
    _adapter("mxfp4.auto-round.rceil", _mx("quant_mx_rceil", 4)),
    _adapter("mxfp8_e4m3.auto-round", _mx("quant_mx", 8)),
)
