#!/usr/bin/env python3
"""Tokens per second of PyTorch on the CPU, for `fp4lab bench`.

Trains the decoder that `fp4lab bench` trains (4 layers, width 256, feed-forward 1024, 8 heads,
GELU, 256 tokens a sequence, 8 sequences a step, 4096 tokens in the vocabulary, untied head, FP32,
AdamW), written as ordinary PyTorch code, on random tokens, and prints the JSON that
`fp4lab bench --peer-json` reads. Needs PyTorch (Debian: apt install python3-torch).

    /usr/bin/python3 tests/bench/torch_peer.py > peers.json
    fp4lab bench --filter torch --peer-json peers.json
"""

import argparse
import json
import os
import statistics
import sys
import time

LAYERS, WIDTH, HEADS, SEQUENCE, BATCH, VOCABULARY = 4, 256, 8, 256, 8, 4096


def make_model(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
            self.out = nn.Linear(WIDTH, WIDTH)
            mask = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).tril()
            self.register_buffer("mask", mask)

        def forward(self, x):
            shape = (BATCH, SEQUENCE, HEADS, WIDTH // HEADS)
            q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
            if hasattr(functional, "scaled_dot_product_attention"):  # PyTorch 2
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
                scores = scores.masked_fill(~self.mask, float("-inf"))
                y = torch.softmax(scores, dim=-1) @ v
            return self.out(y.transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.attention = Attention()
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                     nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x):
            x = x + self.attention(self.attention_norm(x))
            return x + self.mlp(self.mlp_norm(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(SEQUENCE, WIDTH)
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions.weight
            return self.head(self.norm(self.blocks(x)))

    return Decoder()


def step_seconds(torch, steps):
    """Wall seconds of each step, after two warm-up steps that are not counted."""
    torch.manual_seed(1)
    model = make_model(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1))
    seconds = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY),
                                                 tokens[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    if not loss.item() < 9:  # a new model's loss is ln 4096 = 8.3
        sys.exit(f"error: a loss of {loss.item()} after {steps} steps is not training")
    return seconds[2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=15)
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit(f"error: no PyTorch for {sys.executable}; on Debian: apt install python3-torch, "
                 "and start this with /usr/bin/python3")
    torch.set_num_threads(arguments.threads)
    seconds = step_seconds(torch, arguments.steps)
    median = statistics.median(seconds)
    print(json.dumps({"torch": {
        "version": torch.__version__,
        "threads": arguments.threads,
        "tokens_per_second": BATCH * SEQUENCE / median,
        "step_seconds": {"median": median, "least": min(seconds), "most": max(seconds)},
    }}, indent=2))


if __name__ == "__main__":
    main()
