"""Files of integers and tables in groups, made and decoded by their packages' own code.

Each function quantizes a matrix with a package and returns the tensors of a checkpoint, its quantization_config and
the values that the package's own arithmetic decodes. Single files of AutoGPTQ and AutoAWQ are loaded, as their
packages import what no release of transformers has any more.
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import torch


def _file_of(distribution, end):
    for path in importlib.metadata.files(distribution):
        if str(path).endswith(end):
            return Path(path.locate())
    raise FileNotFoundError(f"{distribution} has no {end}")


def _load(distribution, end, **modules):
    """The module of a package's file, with stand-ins for the modules that it imports."""
    before = {name: sys.modules.get(name) for name in modules}
    try:
        for name, members in modules.items():
            module = types.ModuleType(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
            vars(module).update(members)
            sys.modules[name] = module
        spec = importlib.util.spec_from_file_location("loaded_" + Path(end).stem, _file_of(distribution, end))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def weights(seed, rows=64, cols=256):
    """A matrix of BF16 numbers whose groups have unlike ranges."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, cols, generator=generator) * 0.02
    x *= 1 + torch.arange(cols) // 32 % 3
    return x.to(torch.bfloat16).float()


def ranges(x, bits, group, symmetric):
    """Scales in FP16 and zeros, each (rows, groups), as GPTQ and AWQ find them from minima and maxima."""
    rows, cols = x.shape
    parts = x.reshape(rows, cols // group, group)
    low, high = parts.amin(2).clamp(max=0), parts.amax(2).clamp(min=0)
    most = 2**bits - 1
    if symmetric:
        high = torch.maximum(-low, high)
        low = -high
    scales = ((high - low) / most).half().float()
    zeros = torch.full_like(scales, 2 ** (bits - 1)) if symmetric else torch.round(-low / scales).clamp(0, most)
    return scales, zeros


def rounded(x, scales, zeros, index, bits):
    """The nearest numbers that codes stand for, which both packages pack. index: the group of each column."""
    s, z = scales[:, index], zeros[:, index]
    return (torch.clamp(torch.round(x / s) + z, 0, 2**bits - 1) - z) * s


def gptq(bits=4, group=64, symmetric=True, act_order=False):
    names = types.SimpleNamespace(Conv1D=type("Conv1D", (), {}))
    module = _load("auto-gptq", "nn_modules/qlinear/qlinear_cuda.py", transformers={"pytorch_utils": names})
    x = weights(bits)
    rows, cols = x.shape
    order = torch.arange(cols) // group
    if act_order:
        order = order[torch.randperm(cols, generator=torch.Generator().manual_seed(5))]
    sorted_columns = torch.argsort(order, stable=True)
    scales, zeros = ranges(x[:, sorted_columns], bits, group, symmetric)
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight.data = rounded(x, scales, zeros, order, bits)
    layer = module.QuantLinear(bits, group, cols, rows, bias=False, weight_dtype=torch.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer.pack(linear, scales.clone(), zeros.clone(), order.to(torch.int32))
    tensors = {k: getattr(layer, k) for k in ("qweight", "qzeros", "scales", "g_idx")}
    # forward, of the layer without CUDA: x @ (scales * (weight - zeros))
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    mask = 2**bits - 1
    z = torch.bitwise_and(torch.bitwise_right_shift(layer.qzeros.unsqueeze(2), shifts), mask) + 1
    z = z.reshape(layer.scales.shape)
    w = torch.bitwise_and(torch.bitwise_right_shift(layer.qweight.unsqueeze(1), shifts.unsqueeze(-1)), mask)
    w = w.reshape(cols, rows)
    index = layer.g_idx.long()
    values = (layer.scales.float()[index] * (w - z[index]).float()).t()
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": act_order}
    return x, tensors, config, values


def awq(group=64):
    packing = _load("autoawq", "awq/utils/packing_utils.py")
    module = _load(
        "autoawq",
        "awq/modules/linear/gemm.py",
        **{
            "awq": {},
            "awq.utils": {},
            "awq.utils.module": {"try_import": lambda name: (None, "")},
            "awq.utils.utils": {"get_best_device": lambda: "cpu"},
            "awq.utils.packing_utils": {"dequantize_gemm": packing.dequantize_gemm},
        },
    )
    x = weights(21)
    rows, cols = x.shape
    scales, zeros = ranges(x, 4, group, False)
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight.data = rounded(x, scales, zeros, torch.arange(cols) // group, 4)
    parts = {"scales": scales.t().contiguous(), "zeros": zeros.t().contiguous()}
    layer = module.WQLinear_GEMM.from_linear(linear, 4, group, **parts)
    values = packing.dequantize_gemm(layer.qweight, layer.qzeros, layer.scales.float(), 4, group).t()
    tensors = {k: getattr(layer, k) for k in ("qweight", "qzeros", "scales")}
    return x, tensors, {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"}, values


def packed(bits=4, group=32, symmetric=True):
    from compressed_tensors.compressors import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    args = {"num_bits": bits, "type": "int", "symmetric": symmetric}
    args |= {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    x = weights(40 + bits)
    parts = x.reshape(x.shape[0], -1, group or x.shape[1])
    scale, zero = calculate_qparams(parts.amin(2), parts.amax(2), scheme.weights)
    state = {"weight": x, "weight_scale": scale, "weight_zero_point": zero}
    compressed = PackedQuantizationCompressor.compress(state, scheme)
    values = PackedQuantizationCompressor.decompress(compressed, scheme)["weight"]
    config = {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": args}},
    }  # fmt: skip
    return x, compressed, config, values


def mlx(bits=4, group=64):
    import mlx.core as mx

    x = weights(60 + bits)
    words, scales, biases = mx.quantize(mx.array(x.numpy()), group_size=group, bits=bits)
    values = mx.dequantize(words, scales, biases, group_size=group, bits=bits)
    tensors = {
        "weight": torch.from_numpy(np.array(words).view(np.int32).copy()).view(torch.uint32),
        "scales": torch.from_numpy(np.array(scales).copy()),
        "biases": torch.from_numpy(np.array(biases).copy()),
    }
    return x, tensors, {"quantization": {"group_size": group, "bits": bits}}, torch.from_numpy(np.array(values).copy())


def bitsandbytes(kind="nf4", nested=False):
    from bitsandbytes import functional

    x = weights(70)
    codes, state = functional.quantize_4bit(x, quant_type=kind, blocksize=64, compress_statistics=nested)
    values = functional.dequantize_4bit(codes, state)
    tensors = {"weight": codes}
    tensors |= {f"weight.{k}": v for k, v in state.as_dict(packed=True).items()}
    return x, tensors, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}, values


# What is compared: a name, the distribution and the function with its arguments.
FILES = [
    ("GPTQ, 4 bits, symmetric", "auto-gptq", gptq, {}),
    ("GPTQ, 4 bits, with zeros", "auto-gptq", gptq, {"symmetric": False}),
    ("GPTQ, 4 bits, with zeros, in the order of activations", "auto-gptq", gptq, {"symmetric": False, "act_order": True}),
    ("GPTQ, 8 bits, with zeros", "auto-gptq", gptq, {"bits": 8, "symmetric": False}),
    ("GPTQ, 4 bits, groups of 32", "auto-gptq", gptq, {"group": 32}),
    ("AWQ, 4 bits, with zeros", "autoawq", awq, {}),
    ("AWQ, 4 bits, groups of 128", "autoawq", awq, {"group": 128}),
    ("pack-quantized, 4 bits, symmetric", "compressed-tensors", packed, {}),
    ("pack-quantized, 4 bits, with zeros", "compressed-tensors", packed, {"symmetric": False}),
    ("pack-quantized, 4 bits, a scale a row", "compressed-tensors", packed, {"group": 0}),
    ("pack-quantized, 8 bits, groups of 128", "compressed-tensors", packed, {"bits": 8, "group": 128}),
    ("MLX affine, 2 bits", "mlx", mlx, {"bits": 2}),
    ("MLX affine, 4 bits", "mlx", mlx, {}),
    ("MLX affine, 4 bits, groups of 32", "mlx", mlx, {"group": 32}),
    ("MLX affine, 8 bits", "mlx", mlx, {"bits": 8}),
    ("bitsandbytes NF4", "bitsandbytes", bitsandbytes, {}),
    ("bitsandbytes FP4", "bitsandbytes", bitsandbytes, {"kind": "fp4"}),
    ("bitsandbytes NF4, absmaxes quantized", "bitsandbytes", bitsandbytes, {"nested": True}),
]


def write(folder, made, prefix="model.layers.0.mlp.up_proj"):
    """A checkpoint, its original and the decoded values."""
    import json

    from safetensors.torch import save_file

    x, tensors, config, values = made
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    save_file({f"{prefix}.{k}": v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    state = config if "quantization" in config else {"quantization_config": config}
    (folder / "config.json").write_text(json.dumps(state))
    save_file({f"{prefix}.weight": x.contiguous()}, folder.parent / f"{folder.name}.original.safetensors")
    save_file({f"{prefix}.weight": values.float().contiguous()}, folder.parent / f"{folder.name}.values.safetensors")
    return folder / "model.safetensors"
