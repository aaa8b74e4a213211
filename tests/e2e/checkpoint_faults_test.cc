// Further faults of checkpoints, and the lines that users of `check --original`, explain and
// compare see: types of scales, clamps, random rounding, .gguf files and dumps of activations.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/io/tensors/gguf.h"
#include "tests/e2e/file_faults.h"
#include "tests/support/comfy_rounding.h"

namespace fp4lab {
namespace {

const std::vector<std::string> kOriginal = {"check", "w.safetensors", "--original", "x.npy"};

SafetensorsTensor Halves(const char* dtype, FormatId format, std::vector<std::size_t> shape,
                         const std::vector<float>& numbers) {
  std::vector<std::uint16_t> bits;
  for (const float x : numbers) bits.push_back(static_cast<std::uint16_t>(Encode(format, x)));
  const auto raw = std::as_bytes(std::span(bits));
  return {dtype, std::move(shape), ByteArray(raw.begin(), raw.end())};
}

std::vector<float> ScaleNumbers(const StoredMatrix& m, float factor) {
  std::vector<float> numbers;
  for (const std::uint8_t s : m.scales) numbers.push_back(Decode(FormatId::kE4M3, s) * factor);
  return numbers;
}

TEST_CASE("Scales and tensor scales in other types, and multiplied together", "[e2e][files]") {
  const auto with = [](const SafetensorsTensor& scales, bool number) {
    return [=](Files& f) {
      const Weight w;
      f.Number("x.npy", w.x);
      f.file.tensors["l.weight"] = w.codes();
      f.file.tensors["l.weight_scale"] = scales;
      if (number) f.file.tensors["l.weight_scale_2"] = w.number();
      return kOriginal;
    };
  };
  const Weight w;
  const float d = w.m.tensor_scale[0];
  CheckFaults({
      {"scales of E4M3 in BF16",
       with(Halves("BF16", FormatId::kBF16, {64, 8}, ScaleNumbers(w.m, 1)), true),
       0,
       {"l: equal", "no findings"}},
      {"scales of E4M3 in F32",
       with(NumbersTensor({64, 8}, ScaleNumbers(w.m, 1)), true),
       0,
       {"l: equal", "no findings"}},
      {"the tensor scale multiplied into scales in F32",
       with(NumbersTensor({64, 8}, ScaleNumbers(w.m, d)), false),
       0,
       {"l: equal, ", "with the tensor scale multiplied into the scales"}},
      {"the tensor scale multiplied into scales in BF16",
       with(Halves("BF16", FormatId::kBF16, {64, 8}, ScaleNumbers(w.m, d)), false),
       0,
       {"l: equal, ", "with the tensor scale multiplied into the scales"}},
      {"the tensor scale multiplied in, and stored as well",
       with(NumbersTensor({64, 8}, ScaleNumbers(w.m, d)), true),
       1,
       {"the scales hold the tensor scale already"},
       {"l: equal"}},
      {"a tensor scale in BF16",
       [&](Files& f) {
         with(w.scales(), true)(f);
         f.file.tensors["l.weight_scale_2"] = Halves("BF16", FormatId::kBF16, {}, {d});
         return kOriginal;
       },
       0,
       {"codes and scales are those of the original's amax", "rounded to BF16"}},
      {"a tensor scale in F16",
       [&](Files& f) {
         with(w.scales(), true)(f);
         f.file.tensors["l.weight_scale_2"] = Halves("F16", FormatId::kFP16, {}, {d});
         return kOriginal;
       },
       0,
       {"codes and scales are those of the original's amax", "rounded to FP16"}},
      {"a tensor scale that is twice the right one",
       [&](Files& f) {
         with(w.scales(), true)(f);
         f.file.tensors["l.weight_scale_2"] = NumbersTensor({}, {2 * d});
         return kOriginal;
       },
       1,
       {"codes and scales are those of the original's amax",
        "times the original: the tensor scale is that of another tensor"},
       {"rounded to"}},
  });
}

TEST_CASE("Scales that a cast without a clamp makes NaN", "[e2e][files]") {
  // ModelOpt's bytes under an amax that is too small; NaN from 464 on, where 448 is right.
  const auto unclamped = [](float amax, bool all) {
    return [=](Files& f) {
      const Weight w;
      StoredMatrix m =
          Quantize("nvfp4.modelopt", w.x, {.tensor_scale = kMultiplier}, {.amax = {amax}});
      for (std::size_t i = 0; i < m.scales.size(); ++i) {
        float b = 0;
        for (std::size_t k = 0; k < 16; ++k) b = std::max(b, std::fabs(w.x.values[i * 16 + k]));
        if (b / 6.0f / m.tensor_scale[0] > 464.0f || (!all && i == 0)) m.scales[i] = 0x7F;
      }
      f.Number("x.npy", w.x);
      f.file.tensors["l.weight"] = TensorOf("U8", {64, 64}, m.codes);
      f.file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {64, 8}, m.scales);
      f.file.tensors["l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
      return kOriginal;
    };
  };
  const char* const kCause = "were cast to E4M3 without a clamp; the amax of the original is";
  CheckFaults({
      {"under half of the amax", unclamped(0.04f, true), 1, {"nan-scales (1)", kCause}},
      {"a few blocks", unclamped(0.06f, true), 1, {"nan-scales (1)", kCause}},
      {"what explain says of it",
       [&](Files& f) {
         unclamped(0.04f, true)(f);
         return std::vector<std::string>{"explain", "--dialect", "nvfp4.modelopt", "--input",
                                         "x.npy",   "--stored",  "w.safetensors"};
       },
       1,
       {"stores NaN for a scale beyond 448, a cast without a clamp, and scales elements by 448",
        "amax-stale", "scale-overflow-stored-nan"},
       {"Cause: not found"}},
      {"a NaN that no overflow explains", unclamped(0.06f, false), 1, {"nan-scales (1)"}, {kCause}},
  });
}

// ComfyUI's file of a matrix: scales as nvfp4.comfyui computes them, codes by `code` of the scaled
// element and its index.
template <class Code>
std::vector<std::string> Comfy(Files& f, Code code, std::vector<std::string> command) {
  const Matrix<float> x = Weights(8, 128, 256);
  const Dialect& d = *FindDialect("nvfp4.comfyui");
  Quantized q = QuantizeAs(d, x.View());
  const float tensor = q.amax[0] / 2688.0f;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const float scale = tensor * Decode(FormatId::kE4M3, q.scales[i / 16]);
    q.codes[i] = code(x.values[i] / scale, i);
  }
  const StoredMatrix m = Store(
      d, q,
      {.codes = CodeOrder::kHighFirst, .scales = ScaleOrder::k128x4, .tensor_scale = kMultiplier});
  f.Number("x.npy", x);
  const std::string marker = R"({"format": "nvfp4"})";
  f.file.tensors["l.weight"] = TensorOf("U8", {128, 128}, m.codes);
  f.file.tensors["l.weight_scale"] = TensorOf("U8", {128, 16}, m.scales);
  f.file.tensors["l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
  f.file.tensors["l.comfy_quant"] = TensorOf("U8", {marker.size()}, {marker.begin(), marker.end()});
  return command;
}

TEST_CASE("ComfyUI's stochastic rounding, right and wrong", "[e2e][files]") {
  const RandomStream stream{.seed = 12};
  const auto uniform = [=](std::size_t i) {
    return static_cast<float>(stream.Bits32(i) >> 8) * 0x1p-24f;
  };
  const auto right = [=](float v, std::size_t i) { return ComfyStochasticCode(v, uniform(i)); };
  const auto judged = [](std::vector<std::string> command) {
    command.insert(command.end(), {"--input", "x.npy", "--stored", "w.safetensors"});
    return command;
  };
  const char* const kFound =
      "consistent with ComfyUI's stochastic rounding (nvfp4.comfyui.stochastic-centre)";
  CheckFaults({
      {"explain",
       [&](Files& f) {
         return Comfy(f, right, judged({"explain", "--dialect", "nvfp4.comfyui"}));
       },
       1,
       {kFound, "every code can be reached"}},
      {"check", [&](Files& f) { return Comfy(f, right, kOriginal); }, 0, {kFound, "no findings"}},
      {"verify",
       [&](Files& f) {
         return Comfy(
             f, right,
             judged({"verify", "--stochastic", "--dialect", "nvfp4.comfyui.stochastic-centre"}));
       },
       0,
       {"with ComfyUI's stochastic rounding, 1 runs", "accepted"}},
      {"verify of one run, with the row that rounds to nearest",
       [&](Files& f) {
         return Comfy(f, right, judged({"verify", "--dialect", "nvfp4.comfyui"}));
       },
       1,
       {"DIFFERENT", "codes are consistent with ComfyUI's stochastic rounding",
        "verify --stochastic --dialect nvfp4.comfyui.stochastic-centre"}},
      {"verify with the plain row names the noisy one",
       [&](Files& f) {
         return Comfy(f, right, judged({"verify", "--stochastic", "--dialect", "nvfp4.comfyui"}));
       },
       2,
       {"give the dialect nvfp4.comfyui.stochastic-centre"}},
      {"half of the noise",
       [&](Files& f) {
         return Comfy(
             f, [=](float v, std::size_t i) { return ComfyStochasticCode(v, uniform(i), 0.625f); },
             judged({"verify", "--stochastic", "--dialect", "nvfp4.comfyui.stochastic-centre"}));
       },
       1,
       {"refused"}},
      {"one random number for a row",
       [&](Files& f) {
         return Comfy(
             f, [=](float v, std::size_t i) { return ComfyStochasticCode(v, uniform(i / 256)); },
             judged({"verify", "--stochastic", "--dialect", "nvfp4.comfyui.stochastic-centre"}));
       },
       1,
       {"refused"}},
      {"a sign that the noise cannot change",
       [&](Files& f) {
         return Comfy(
             f,
             [=](float v, std::size_t i) {
               const std::uint8_t code = right(v, i);
               return static_cast<std::uint8_t>(i == 300 ? code ^ 8 : code);
             },
             judged({"explain", "--dialect", "nvfp4.comfyui"}));
       },
       1,
       {"Cause: not found"},
       {kFound}},
  });
}

TEST_CASE("Further faults of .gguf files", "[e2e][files]") {
  // NVFP4 of 64x128 numbers: 4 scales and 32 bytes of codes a block.
  const auto gguf = [](Files& f, auto change) {
    const Weight w;
    StoredMatrix m = Quantize("nvfp4.ggml", w.x,
                              {.codes = CodeOrder::kSplitHalves, .tensor_scale = kMultiplier});
    GgufFile file;
    std::vector<float> number = m.tensor_scale;
    change(m, number);
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < m.codes.size() / 32; ++i) {
      for (std::size_t s = 0; s < 4; ++s) bytes.push_back(std::byte{m.scales[i * 4 + s]});
      for (std::size_t c = 0; c < 32; ++c) bytes.push_back(std::byte{m.codes[i * 32 + c]});
    }
    file.tensors["blk.0.ffn_up.weight"] = {
        kGgmlNvfp4, {64, 128}, ByteArray(bytes.begin(), bytes.end())};
    if (!number.empty()) {
      const auto raw = std::as_bytes(std::span(number));
      file.tensors["blk.0.ffn_up.scale"] = {
          kGgmlF32, {number.size()}, ByteArray(raw.begin(), raw.end())};
    }
    WriteGguf(f.Path("m.gguf"), file);
    f.Number("x.npy", w.x);
    return std::vector<std::string>{"check", "m.gguf", "--original", "x.npy"};
  };
  CheckFaults({
      {"right", [&](Files& f) { return gguf(f, [](auto&, auto&) {}); }, 0, {"no findings"}},
      {"zeroed scales",
       [&](Files& f) {
         return gguf(f, [](StoredMatrix& m, auto&) { std::ranges::fill(m.scales, 0); });
       },
       1,
       {"zero-scales (1)"}},
      {"a tensor scale of 0",
       [&](Files& f) { return gguf(f, [](auto&, std::vector<float>& n) { n = {0.0f}; }); },
       1,
       {"tensor-scale-zero (1)"}},
      {"nibbles in pairs, not in split halves",
       [&](Files& f) {
         return gguf(f, [](StoredMatrix& m, auto&) {
           m = Quantize("nvfp4.ggml", Weight().x, {.tensor_scale = kMultiplier});
         });
       },
       1,
       {"read with codes low-first and scales linear the SQNR is"}},
      {"a tensor scale where none is due",
       [&](Files& f) { return gguf(f, [](auto&, std::vector<float>& n) { n = {4.0f}; }); },
       1,
       {"times the original"}},
  });
}

TEST_CASE("Dumps of a training engine and of a rollout engine", "[e2e][files]") {
  const auto dumps = [](Files& f, auto change, std::vector<std::string> more = {}) {
    for (const bool second : {false, true}) {
      SafetensorsFile file;
      for (const int layer : {2, 10}) {
        Matrix<float> x = Weights(static_cast<std::uint64_t>(layer), 40, 64, 1.0);
        if (second) change(layer, x);
        file.tensors["layers." + std::to_string(layer) + ".mlp"] =
            NumbersTensor({40, 64}, x.values);
      }
      WriteSafetensors(f.Path(second ? "rollout.safetensors" : "train.safetensors"), file);
    }
    std::vector<std::string> command = {"compare", "train.safetensors", "rollout.safetensors"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const auto noise = [](int, Matrix<float>& x) {
    const Matrix<float> n = NormalMatrix(9, x.rows, x.cols, 1e-3);
    for (std::size_t i = 0; i < n.values.size(); ++i) x.values[i] += n.values[i];
  };
  const auto shifted = [](int layer, Matrix<float>& x) {
    if (layer == 10) std::rotate(x.values.begin(), x.values.end() - 64, x.values.end());
  };
  CheckFaults({
      {"equal",
       [&](Files& f) { return dumps(f, [](int, auto&) {}); },
       0,
       {"2 tensors, 2 equal, 0 different"},
       {"first that differs"}},
      {"rows of tokens one too late, in layer 10",
       [&](Files& f) { return dumps(f, shifted); },
       1,
       {"1 equal, 1 different", "the first that differs: layers.10.mlp",
        "39 of 40 rows stand 1 later in the second"}},
      {"a block of 16 under another scale, from layer 2 on",
       [&](Files& f) {
         return dumps(f, [](int, Matrix<float>& x) {
           for (std::size_t c = 32; c < 48; ++c) x(7, c) *= 1.125f;
         });
       },
       1,
       {"the first that differs: layers.2.mlp", "row 7 (1 of 40), columns 32..47 of 64",
        "whole blocks of 16 columns differ, 1 of 160"}},
      {"noise", [&](Files& f) { return dumps(f, noise); }, 1, {"2 tensors, 0 equal, 2 different"}},
      {"noise that is accepted",
       [&](Files& f) {
         return dumps(f, noise, {"--least-sqnr", "50"});
       },
       0,
       {"2 tensors, 0 equal, 2 accepted, 0 different"}},
      {"a NaN that is not",
       [&](Files& f) {
         return dumps(f, [](int, Matrix<float>& x) { x(1, 2) = NAN; }, {"--least-sqnr", "50"});
       },
       1,
       {"first at (1, 2)", "nan", "NaN: 0 in the first, 1 in the second, 1 in one only"}},
      {"a dump that is not there",
       [&](Files& f) {
         dumps(f, noise);
         return std::vector<std::string>{"compare", "train.safetensors", "rolout.safetensors"};
       },
       2,
       {"rolout.safetensors: is not there; did you mean \"rollout.safetensors\"?"}},
  });
}

}  // namespace
}  // namespace fp4lab
