"""Small models of transformers with random weights: every architecture that `fp4lab import` reads.

    python models.py FOLDER   # writes FOLDER/NAME/{config.json,model.safetensors,logits.npy,
                              # tokens.npy}: the samples of tests/models
"""

import sys
from pathlib import Path

import numpy
import torch
import transformers

SIZES = dict(
    vocab_size=48,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=24,
)
EXPERTS = dict(num_experts_per_tok=2, output_router_logits=False)

# name: architecture, the keys of its configuration beside SIZES
MODELS = {
    "llama": ("Llama", dict(rope_theta=5e5, rms_norm_eps=1e-5)),
    "llama-tied": ("Llama", dict(tie_word_embeddings=True, head_dim=6)),
    "qwen2": ("Qwen2", dict(use_sliding_window=True, sliding_window=5, max_window_layers=0)),
    "qwen3": ("Qwen3", dict(head_dim=8, rope_theta=1e6)),
    "qwen3-windows": (
        "Qwen3",
        dict(
            head_dim=8,
            use_sliding_window=True,
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    "qwen3-moe": (
        "Qwen3Moe",
        dict(head_dim=8, num_experts=6, moe_intermediate_size=8, norm_topk_prob=True, **EXPERTS),
    ),
    "qwen3-moe-plain": (
        "Qwen3Moe",
        dict(head_dim=4, num_experts=6, moe_intermediate_size=8, norm_topk_prob=False, **EXPERTS),
    ),
    "qwen3-moe-dense-first": (
        "Qwen3Moe",
        dict(head_dim=4, num_experts=4, moe_intermediate_size=8, norm_topk_prob=True, mlp_only_layers=[0], **EXPERTS),
    ),
    "mistral": ("Mistral", dict(sliding_window=6)),
    "mixtral": ("Mixtral", dict(num_local_experts=4, sliding_window=None, **EXPERTS)),
    "smollm3": (
        "SmolLM3",
        dict(num_hidden_layers=4, no_rope_layer_interval=2, pad_token_id=0, bos_token_id=1,
             eos_token_id=2),
    ),
    "arcee": ("Arcee", dict(bos_token_id=1, eos_token_id=2)),
    "arcee-gelu": ("Arcee", dict(hidden_act="gelu_pytorch_tanh", bos_token_id=1, eos_token_id=2)),
}  # fmt: skip


def make(name, seed=0, dtype=torch.float32, **sizes):
    """The model, in `dtype`. Every parameter is random, gains included; biases are zero."""
    architecture, keys = MODELS[name]
    keys = {**SIZES, **keys, **sizes}
    if "layer_types" in keys:  # a period, repeated
        period = keys["layer_types"]
        keys["layer_types"] = period * (keys["num_hidden_layers"] // len(period))
    config = getattr(transformers, architecture + "Config")(**keys)
    config._attn_implementation = "eager"
    model = getattr(transformers, architecture + "ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if key.endswith("bias"):
                parameter.zero_()
            elif parameter.ndim == 1:
                parameter.copy_(1 + 0.2 * values)
            else:
                parameter.copy_(values * (1.5 / parameter.shape[-1] ** 0.5))
    return cast(model, dtype)


def cast(model, dtype):
    """The model with its parameters in `dtype`. Its buffers, the angles of positions, stay in binary32, as
    from_pretrained leaves them."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def tokens_of(model, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (length,), generator=generator)


def logits_of(model, tokens):
    """Logits in binary32 of the model's weights, (tokens, vocabulary)."""
    with torch.no_grad():
        return cast(model, torch.float32)(tokens[None].long(), use_cache=False).logits[0].float().numpy()


def main(folder):
    for name in MODELS:
        model = make(name, dtype=torch.bfloat16)
        model.save_pretrained(folder / name)
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        tokens = tokens_of(model, 24)
        numpy.save(folder / name / "tokens.npy", tokens.numpy().astype(numpy.uint16))
        numpy.save(folder / name / "logits.npy", logits_of(model, tokens))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
