"""A block of experts with stacked weights, in the ways in which models multiply by them, and a small model of it."""

import torch
import torch.nn.functional as F
from torch import nn

WAYS = ("_grouped_mm", "grouped_mm", "loop", "unbind", "bmm", "chunk", "transposed")


class Experts(nn.Module):
    """x (tokens, width), sorted by expert; ends: of the tokens of each expert."""

    def __init__(self, experts=4, width=32, hidden=64, way="grouped_mm"):
        super().__init__()
        self.way = way
        turned = way == "transposed"
        self.w1 = nn.Parameter(torch.randn(experts, *((width, hidden) if turned else (hidden, width))) / width**0.5)
        inner = hidden // 2 if way == "chunk" else hidden
        self.w2 = nn.Parameter(torch.randn(experts, *((inner, width) if turned else (width, inner))) / hidden**0.5)

    def forward(self, x, ends):
        return getattr(self, "with_" + self.way.strip("_"))(x, ends)

    def with_grouped_mm(self, x, ends):
        product = torch._grouped_mm if self.way == "_grouped_mm" else F.grouped_mm
        h = product(x, self.w1.to(x.dtype).transpose(-2, -1), offs=ends)
        return product(F.silu(h), self.w2.to(x.dtype).transpose(-2, -1), offs=ends)

    def with_transposed(self, x, ends):
        return F.grouped_mm(F.silu(F.grouped_mm(x, self.w1, offs=ends)), self.w2, offs=ends)

    def with_chunk(self, x, ends):
        gate, up = self.w1.chunk(2, dim=1)
        h = F.silu(F.grouped_mm(x, gate.mT, offs=ends)) * F.grouped_mm(x, up.mT, offs=ends)
        return F.grouped_mm(h, self.w2.mT, offs=ends)

    def with_loop(self, x, ends):
        out, begin = [], 0
        for expert, end in enumerate(ends.tolist()):
            out.append(F.silu(F.linear(x[begin:end], self.w1[expert])) @ self.w2[expert].t())
            begin = end
        return torch.cat(out)

    def with_unbind(self, x, ends):
        out, begin = [], 0
        for w1, w2, end in zip(self.w1.unbind(0), torch.unbind(self.w2), ends.tolist()):
            out.append(torch.matmul(F.silu(torch.mm(x[begin:end], w1.T)), w2.T))
            begin = end
        return torch.cat(out)

    def with_bmm(self, x, ends):
        x = x.reshape(self.w1.shape[0], -1, x.shape[-1])
        return torch.bmm(F.silu(x @ self.w1.mT), self.w2.mT).flatten(0, 1)


class MoE(nn.Module):
    """Each token goes to the expert of its largest score."""

    def __init__(self, experts=4, width=32, way="grouped_mm"):
        super().__init__()
        self.router, self.experts = nn.Linear(width, experts, bias=False), Experts(experts, width, way=way)

    def forward(self, x):
        scores = self.router(x).softmax(-1)
        best, chosen = scores.max(-1)
        order = chosen.argsort(stable=True)
        ends = torch.bincount(chosen, minlength=scores.shape[-1]).cumsum(0).to(torch.int32)
        y = self.experts(x[order], ends)
        return x + best[:, None] * torch.zeros_like(y).index_copy(0, order, y)


class Model(nn.Module):
    def __init__(self, layers=2, width=32, classes=16):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"proj": nn.Linear(width, width), "moe": MoE(width=width)}) for _ in range(layers)
        )
        self.lm_head = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = x + block["proj"](x)
            x = block["moe"](x)
        return self.lm_head(x)
