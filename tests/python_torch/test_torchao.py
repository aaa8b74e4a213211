"""torchao 0.18's NVFP4 training on the CPU: operand bytes by torchao's formulas in numpy, and a
model that trains."""

import ml_dtypes
import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from torch import nn

import fp4lab.torch as ft

pytest.importorskip("torchao", reason="torchao is not installed")
from torchao.prototype.moe_training.nvfp4_training import nvfp4_linear  # noqa: E402
from torchao.prototype.moe_training.nvfp4_training.nvfp4_training import (
    NVFP4Linear,
    NVFP4TrainingConfig,
)  # noqa: E402
from torchao.quantization import quantize_  # noqa: E402


def formula(x, amax, square=False):
    """_nvfp4_quantize and _nvfp4_2d_quantize of torchao 0.18: (scaled elements, scale bytes a
    line)."""
    lines, length = x.shape
    b = np.abs(x).reshape(lines, length // 16, 16).max(-1)
    if square:
        b = np.repeat(b.reshape(lines // 16, 16, -1).max(1), 16, axis=0)
    encode = np.float32(1) if amax == 0 else np.float32(2688) / np.float32(amax)
    scale = np.clip((b / np.float32(6)) * encode, np.float32(2**-6), np.float32(448)).astype(
        ml_dtypes.float8_e4m3fn
    )
    factor = np.float32(1) / (scale.astype(np.float32) * (np.float32(1) / encode))
    return np.clip(x * np.repeat(factor, 16, axis=1), -6, 6), scale.view(np.uint8)


def unswizzled(tiles):
    """(lines, blocks) of scale bytes in tiles (lines / 128, blocks / 4, 32, 16)."""
    t = tiles.view(torch.uint8).numpy()
    return (
        t.reshape(t.shape[0], t.shape[1], 32, 4, 4)
        .transpose(0, 3, 2, 1, 4)
        .reshape(t.shape[0] * 128, -1)
    )


def check(codes, tiles, x, amax, square=False, stochastic=False):
    """Compares an operand's bytes with the formula; returns how many were compared."""
    v, scales = formula(x, amax, square)
    data = codes.view(torch.uint8).numpy()
    got = reference.E2M1[np.stack([data & 15, data >> 4], -1).reshape(x.shape)]
    assert np.array_equal(unswizzled(tiles), scales)
    if (
        stochastic
    ):  # a neighbour of the element, and the element itself where it is a number of the format
        grid = np.sort(reference.E2M1)
        below, above = (
            grid[np.searchsorted(grid, v, "right") - 1],
            grid[np.searchsorted(grid, v, "left") % 16],
        )
        assert ((got == below) | (got == above)).all()
        inside = below < above
        share = (got == above)[inside].mean() - (
            (v - below)[inside] / (above - below)[inside]
        ).mean()
        assert abs(share) < 5 / np.sqrt(inside.sum())
    else:
        assert np.array_equal(got, v.astype(ml_dtypes.float4_e2m1fn).astype(np.float32))
    return data.size + scales.size


@pytest.fixture
def journal(monkeypatch):
    """The calls of the replaced kernels, checked as they are made: {kernel: bytes compared}."""
    counts = {}

    def checked(name, kernel):
        def call(x, *arguments, **options):
            out = kernel(x, *arguments, **options)
            f = x.float().detach().numpy()
            if name == "triton_weight_quantize_2d":
                amax = arguments[0].item()
                counted = check(*out[:2], f, amax, square=True) + check(
                    *out[2:], f.T, amax, square=True
                )
            else:
                signs = sum(1 << i for i, s in enumerate(options["sign_vector"]) if s < 0)
                columns = reference.transform(np.ascontiguousarray(f.T), 16, signs)
                if name == "triton_rht_amax":
                    assert [t.item() for t in out] == [np.abs(columns).max(), np.abs(f).max()]
                    counted = 8
                else:
                    sr = options["stochastic_rounding"]
                    counted = check(
                        *out[:2], columns, options["col_global_amax"].item(), stochastic=sr
                    )
                    counted += check(*out[2:], f, options["row_global_amax"].item(), stochastic=sr)
            counts[name] = counts.get(name, 0) + counted
            return out

        return call

    with ft.enable_torchao_training_on_cpu():
        for name in ("triton_rht_amax", "triton_rht_quantize_row_col", "triton_weight_quantize_2d"):
            monkeypatch.setattr(nvfp4_linear, name, checked(name, getattr(nvfp4_linear, name)))
        yield counts
        monkeypatch.undo()


def test_a_model_trains_50_steps_and_every_operand_has_the_bytes_of_the_formula(journal):
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)).bfloat16()
    x = torch.randn(128, 128, dtype=torch.bfloat16)
    target = torch.randn(128, 128, dtype=torch.bfloat16)
    quantize_(model, NVFP4TrainingConfig())
    assert isinstance(model[0], NVFP4Linear)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(50):
        loss = F.mse_loss(model(x).float(), target.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    # A step: two linears; x and dy both ways; weights both ways; an amax pair for x and for dy.
    both = 2 * (
        1 / 2 + 1 / 16
    )  # bytes of an element's code and share of a scale, in two directions
    assert journal["triton_rht_amax"] == 50 * 2 * 2 * 8
    assert journal["triton_weight_quantize_2d"] == 50 * 2 * 128 * 256 * both
    assert journal["triton_rht_quantize_row_col"] == 50 * 2 * 128 * (128 + 256) * both


def test_products_are_near_those_of_the_values(journal):
    x, w = torch.randn(128, 256, dtype=torch.bfloat16), torch.randn(128, 256, dtype=torch.bfloat16)
    layer = NVFP4Linear(256, 128, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight.copy_(w)
        error = (layer(x).float() - x.float() @ w.float().T).norm() / (
            x.float() @ w.float().T
        ).norm()
    assert 0.05 < error < 0.25


def test_the_same_seeds_give_the_same_gradients():
    def gradient(seed):
        torch.manual_seed(seed)
        layer = NVFP4Linear(128, 128, dtype=torch.bfloat16)
        with torch.no_grad():
            layer.weight.copy_(torch.eye(128))
            layer._sr_seed.fill_(5)
        torch.manual_seed(seed)
        layer(
            torch.linspace(-1, 1, 128 * 128).reshape(128, 128).bfloat16()
        ).float().square().sum().backward()
        return layer.weight.grad

    with ft.enable_torchao_training_on_cpu():
        assert torch.equal(gradient(1), gradient(1)) and not torch.equal(gradient(1), gradient(2))


def test_everything_is_put_back():
    before = nvfp4_linear.triton_rht_amax
    with ft.enable_torchao_training_on_cpu():
        assert nvfp4_linear.triton_rht_amax is not before
    assert nvfp4_linear.triton_rht_amax is before


def test_other_releases_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("torchao.__version__", "0.19.0")
    with pytest.raises(
        ImportError, match="knows the formulas of torchao 0.18, not 0.19.0"
    ) as error:
        with ft.enable_torchao_training_on_cpu():
            pass
    assert "\n" not in str(error.value)
