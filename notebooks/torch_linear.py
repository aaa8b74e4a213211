"""A small GPT in PyTorch, its linears converted to the NVFP4 recipe of Transformer Engine, trained
on a CPU.

pip install 'fp4lab[torch]' && python torch_linear.py
"""

import torch
import torch.nn.functional as F
from torch import nn

import fp4lab.torch


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, False), nn.Linear(width, width, False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width: int = 64, heads: int = 2, layers: int = 2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.lm_head = nn.RMSNorm(width), nn.Linear(width, 256, False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))


def train(recipe: str | None, steps: int = 60) -> list[float]:
    text = torch.frombuffer(bytearray(__doc__.encode() * 20), dtype=torch.uint8).long()
    torch.manual_seed(0)
    model = GPT()
    if recipe:
        fp4lab.torch.convert(model, recipe, seed=1)  # all linears but lm_head
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for _ in range(steps):
        at = torch.randint(len(text) - 65, (8, 1)) + torch.arange(65)
        loss = F.cross_entropy(model(text[at[:, :-1]]).flatten(0, 1), text[at[:, 1:]].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for recipe in (None, "bf16", "te_nvfp4", "mxfp4"):
        losses = train(recipe)
        print(
            f"{recipe or 'torch':10} "
            + " ".join(f"{loss:.3f}" for loss in losses[::10] + losses[-1:])
        )
