"""A small GPT and a text of known structure to train it on."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.ModuleDict(
            {"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width)}
        )
        self.mlp = nn.ModuleDict(
            {"up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)}
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            self.attention["qkv"](self.norm1(x))
            .view(b, t, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention["out"](y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp["down"](F.gelu(self.mlp["up"](self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary=32, width=64, heads=2, layers=2, length=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.1)
        self.lm_head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))


def batch(step, size=8, length=64, vocabulary=32):
    """Ids (size, length + 1) that count upwards in threes, but for one in eight, which is any."""
    g = torch.Generator().manual_seed(step)
    ids = (
        torch.randint(vocabulary, (size, 1), generator=g) + 3 * torch.arange(length + 1)
    ) % vocabulary
    any_id = torch.randint(vocabulary, ids.shape, generator=g)
    return torch.where(torch.rand(ids.shape, generator=g) < 1 / 8, any_id, ids)


def train(model, steps, learning_rate=3e-3):
    """The loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    losses = []
    for step in range(steps):
        ids = batch(step)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
