"""Models of transformers with random weights: their experts, in both ways in which their code multiplies by the
stacked weights."""

import pytest
import torch

import fp4lab.torch as ft

transformers = pytest.importorskip("transformers")
COMMON = dict(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, head_dim=16)  # fmt: skip
MODELS = {
    "Llama": {},
    "Qwen3Moe": dict(moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2),
    "Mixtral": dict(num_local_experts=4),
    "GptOss": dict(num_local_experts=4, layer_types=["full_attention"] * 2),
}
IDS = torch.arange(128).reshape(4, 32) * 37 % 128


def model(name, way):
    torch.manual_seed(0)
    config = getattr(transformers, name + "Config")(**COMMON, **MODELS[name])
    made = getattr(transformers, name + "ForCausalLM")(config).float().eval()
    if "num_experts" in MODELS[name] or "num_local_experts" in MODELS[name]:
        made.set_experts_implementation(way)
    with torch.no_grad():
        for p in made.parameters():
            p.mul_(4 if p.dim() > 1 else 1)
    return made


def loss(m):
    with torch.no_grad():
        return m(input_ids=IDS, labels=IDS).loss.item()


WAYS = [("Llama", "eager")] + [(name, way) for name in MODELS if name != "Llama" for way in ("eager", "grouped_mm")]


@pytest.mark.parametrize("name, way", WAYS)
def test_observed_attributed_and_converted(name, way):
    m = model(name, way)
    plain = loss(m)
    found = ft.attribute(m, {"input_ids": IDS, "labels": IDS}, recipe="te_nvfp4_no_rht", by={"experts": "*.experts.*"})
    with ft.observe(m, "te_nvfp4") as seen:
        m.train()(input_ids=IDS, labels=IDS).loss.backward()
    m.eval()
    assert loss(m) == plain
    expert_rows = {r["name"].split(".experts.")[1].split("[")[0] for r in seen.rows if ".experts." in r["name"]}
    ft.convert(m, "te_nvfp4_no_rht")
    linears = sum(isinstance(c, ft.Linear) for c in m.modules())
    assert linears == (14 if name == "Llama" else 8)  # of attention; routers and the head stay
    assert loss(m) == found.with_all
    assert abs(found.without - plain) < 0.02 and found.difference != 0
    if name == "Llama":
        assert not expert_rows and [s.player for s in found.shares] == ["other"]
    else:
        assert expert_rows == {"gate_up_proj", "down_proj"}
        assert {s.player for s in found.shares} == {"experts", "other"} and found["experts"].linears == 4


def test_a_way_that_is_not_known_is_refused():
    m = ft.convert(model("Mixtral", "batched_mm"), "te_nvfp4_no_rht")
    with pytest.raises(ValueError, match="gate_up_proj is the first factor of bmm"):
        loss(m)
