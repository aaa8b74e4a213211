#!/usr/bin/env python3
"""A plain PyTorch trainer of fp4lab's model under BF16 autocast: a yardstick for `fp4lab train`.

  $ torch_trainer.py LAYERS D_MODEL HEADS FFN SEQUENCE VOCABULARY BATCH MICRO_BATCHES STEPS

Prints the median milliseconds of a step (forward, backward, clipping, fused AdamW) on random tokens,
with torch.compile.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d, heads, ffn):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, ffn, bias=False), nn.Linear(ffn, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(b, t, 3, self.heads, -1).unbind(2)

        def rotate(y):
            low, high = y.chunk(2, -1)
            return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

        q, k, v = rotate(q).transpose(1, 2), rotate(k).transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.mlp_norm(x))).square())


class Decoder(nn.Module):
    def __init__(self, layers, d, heads, ffn, sequence, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d)
        self.blocks = nn.ModuleList(Block(d, heads, ffn) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(d, eps=1e-5), nn.Linear(d, vocabulary, bias=False)
        half = d // heads // 2
        angle = torch.outer(torch.arange(sequence), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos()[None, :, None, :])
        self.register_buffer("sin", angle.sin()[None, :, None, :])

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def main():
    layers, d, heads, ffn, sequence, vocabulary, batch, parts, steps = map(int, sys.argv[1:])
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Decoder(layers, d, heads, ffn, sequence, vocabulary).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    run = torch.compile(model)
    tokens = torch.randint(vocabulary, (batch, sequence + 1), device="cuda")
    seconds = []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for part in tokens.chunk(parts):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = run(part[:, :-1], part[:, 1:])
            (loss / parts).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    print(f"torch {torch.__version__}, torch.compile: "
          f"{1e3 * statistics.median(seconds[3:]):.3f} ms/step, loss {loss.item():.4f}")


main()
