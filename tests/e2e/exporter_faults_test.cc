// What public bug reports and exporters get wrong in files of quantized matrices, and what a user
// of the program is told.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/file_faults.h"

namespace fp4lab {
namespace {

const std::vector<std::string> kCheck = {"check", "w.safetensors"};

void AddAll(Files& f, const std::string& codes, const std::string& scales,
            const std::string& number) {
  const Weight w;
  f.file.tensors[codes] = w.codes();
  f.file.tensors[scales] = w.scales();
  f.file.tensors[number] = w.number();
}

TEST_CASE("Names of a checkpoint that exporters get wrong", "[e2e][files]") {
  CheckFaults({
      {"the names of block scales and tensor scale exchanged",
       [](Files& f) {
         AddAll(f, "l.weight", "l.weight_scale_2", "l.weight_scale");
         return kCheck;
       },
       1,
       {"l.weight_scale_2 has such a grid: the names of the two are exchanged"}},
      {"codes by compressed-tensors, the number by ModelOpt",
       [](Files& f) {
         AddAll(f, "l.weight_packed", "l.weight_scale", "l.weight_scale_2");
         return kCheck;
       },
       1,
       {"has no l.weight_global_scale; l.weight_scale_2 is there, as modelopt names a "
        "multiplier"}},
      {"a prefix that scales and number lack",
       [](Files& f) {
         AddAll(f, "model.layers.0.q.weight", "layers.0.q.weight_scale",
                "layers.0.q.weight_scale_2");
         return kCheck;
       },
       1,
       {"0 quantized matrices", "layers.0.q.weight_scale has another prefix",
        "model.layers.0.q.weight has another prefix"}},
      {"a prefix of torch.compile that the number lacks",
       [](Files& f) {
         AddAll(f, "_orig_mod.l.weight", "_orig_mod.l.weight_scale", "l.weight_scale_2");
         return kCheck;
       },
       1,
       {"has no _orig_mod.l.weight_scale_2; l.weight_scale_2 is there, under another prefix"}},
      {"a plural",
       [](Files& f) {
         AddAll(f, "l.weight", "l.weight_scales", "l.weight_scale_2");
         return kCheck;
       },
       1,
       {"l.weight_scales: no matrix uses it: l.weight is U8; did you mean l.weight_scale?"}},
      {"the multiplier under the divisor's name",
       [](Files& f) {
         AddAll(f, "l.weight_packed", "l.weight_scale", "l.weight_global_scale");
         f.Number("x.npy", Weight().x);
         return std::vector<std::string>{"check", "w.safetensors", "--original", "x.npy"};
       },
       1,
       {"the tensor scale is the other of multiplier and divisor"}},
      {"Quark's names, listed and looked at",
       [](Files& f) {
         const Weight w;
         const StoredMatrix m = Quantize("mxfp4.even", w.x);
         f.file.tensors["l.weight"] = TensorOf("U8", {64, 64}, m.codes);
         f.file.tensors["l.weight_scale"] = TensorOf("U8", {64, 4}, m.scales);
         return std::vector<std::string>{"inspect", "w.safetensors#l"};
       },
       0,
       {"64x128 float4_e2m1fn in 1x32 blocks with float8_e8m0fnu scales"}},
      {"torchao's names with colons",
       [](Files& f) {
         const Weight w;
         f.Number("x.npy", w.x);
         f.file.tensors["l.weight:qdata"] = w.codes();
         f.file.tensors["l.weight:scale"] = w.scales();
         f.file.tensors["l.weight:per_tensor_scale"] = w.number();
         return std::vector<std::string>{"check", "w.safetensors", "--original", "x.npy"};
       },
       0,
       {"torchao-colon", "l.weight: equal"}},
      {"ModelOpt's experts as 3-D parameters",
       [](Files& f) {
         const Weight w;
         f.Number("x.npy", w.x);
         f.file.tensors["e.down"] = TensorOf("U8", {2, 32, 64}, w.m.codes);
         f.file.tensors["e.down_weight_scale"] = TensorOf("F8_E4M3", {2, 32, 8}, w.m.scales);
         f.file.tensors["e.down_weight_scale_2"] = w.number();
         return std::vector<std::string>{"check", "w.safetensors", "--original", "x.npy"};
       },
       0,
       {"modelopt-experts", "2x32x128", "e.down: equal"}},
      {"gpt-oss's own names",
       [](Files& f) {
         const Weight w;
         const StoredMatrix m = Quantize("mxfp4.rceil", w.x);
         f.Number("x.npy", w.x);
         f.file.tensors["block.0.mlp.mlp1_weight.blocks"] = TensorOf("U8", {2, 32, 4, 16}, m.codes);
         f.file.tensors["block.0.mlp.mlp1_weight.scales"] = TensorOf("U8", {2, 32, 4}, m.scales);
         return std::vector<std::string>{"check", "w.safetensors", "--original", "x.npy"};
       },
       0,
       {"gpt-oss-original", "block.0.mlp.mlp1_weight: equal"}},
      {"ComfyUI's scaled FP8",
       [](Files& f) {
         const StoredMatrix m = Quantize("fp8_e4m3", Weight().x,
                                         {.codes = CodeOrder::kBytes, .tensor_scale = kMultiplier});
         f.file.tensors["l.weight"] = TensorOf("F8_E4M3", {64, 128}, m.codes);
         f.file.tensors["l.scale_weight"] = NumbersTensor({}, m.tensor_scale);
         return kCheck;
       },
       0,
       {"comfyui-scaled", "FP8 E4M3, a scale a tensor"}},
  });
}

TEST_CASE("Scales that exporters do not write, or write in a wrong type", "[e2e][files]") {
  const auto mx = [](Files& f, const char* dtype, const Bytes& scales) {
    const StoredMatrix m = Quantize("mxfp4.rceil", Weight().x);
    f.Kernel(Weight().x, m);
    f.file.tensors["l.weight"] = TensorOf("I8", {64, 64}, m.codes);
    f.file.tensors["l.scale"] = TensorOf(dtype, {64, 4}, scales);
  };
  const auto number = [](const char* dtype, std::size_t bytes) {
    return [=](Files& f) {
      AddAll(f, "l.weight", "l.weight_scale", "l.weight_scale_2");
      f.file.tensors["l.weight_scale_2"] = TensorOf(dtype, {}, Bytes(bytes, 0x3F));
      return kCheck;
    };
  };
  const Bytes scales = Quantize("mxfp4.rceil", Weight().x).scales;
  CheckFaults({
      {"DeepSeek-V4's names and types",
       [&](Files& f) {
         mx(f, "F8_E8M0", scales);
         return kCheck;
       },
       0,
       {"deepseek-v4", "MXFP4", "low-first, E8M0 linear"}},
      {"all scales 0x00",
       [&](Files& f) {
         mx(f, "F8_E8M0", Bytes(256, 0));
         return kCheck;
       },
       1,
       {"all 256 blocks have the scale byte 0x00 (2^-127) although their codes are not 0"}},
      {"all scales 0x00, looked at",
       [&](Files& f) {
         mx(f, "F8_E8M0", Bytes(256, 0));
         return std::vector<std::string>{"inspect", "w.safetensors"};
       },
       0,
       {"note", "all 256 scales are 0x00 = 5.877472e-39 although codes are not 0"}},
      {"right scales have no note",
       [&](Files& f) {
         mx(f, "F8_E8M0", scales);
         return std::vector<std::string>{"inspect", "w.safetensors"};
       },
       0,
       {"scale histogram"},
       {"note"}},
      {"the number 2^(e - 127) copied by value",
       [&](Files& f) {
         Bytes cast = scales;
         for (std::uint8_t& e : cast) {
           const float value = std::ldexp(1.0f, e - 127);
           e = static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) & 0xFF);
         }
         cast[0] = 8;
         mx(f, "U8", cast);
         return kCheck;
       },
       1,
       {"every scale byte is 0 or a power of two: 2^(e - 127) cast to a byte, not e"}},
      {"E8M0 declared as E4M3",
       [&](Files& f) {
         mx(f, "F8_E4M3", scales);
         return kCheck;
       },
       1,
       {"scales are declared F8_E4M3; the grid of 1x32 blocks is that of MXFP4, in E8M0"}},
      {"E4M3 declared as E5M2",
       [](Files& f) {
         AddAll(f, "l.weight", "l.weight_scale", "l.weight_scale_2");
         f.file.tensors["l.weight_scale"].dtype = "F8_E5M2";
         return kCheck;
       },
       1,
       {"scales are F8_E5M2; scales that can be read are F8_E4M3"}},
      {"bytes of scales declared as I8",
       [](Files& f) {
         AddAll(f, "l.weight", "l.weight_scale", "l.weight_scale_2");
         f.file.tensors["l.weight_scale"].dtype = "I8";
         f.Number("x.npy", Weight().x);
         return std::vector<std::string>{"verify", "--dialect", "nvfp4.modelopt", "--input",
                                         "x.npy",  "--stored",  "w.safetensors"};
       },
       0,
       {"nvfp4.modelopt: equal"}},
      {"a tensor scale in F64",
       number("F64", 8),
       1,
       {"l.weight_scale_2 is F64; a tensor scale is F32, BF16 or F16"}},
      {"a tensor scale in I64",
       number("I64", 8),
       1,
       {"l.weight_scale_2 is I64; a tensor scale is F32, BF16 or F16"}},
      {"scales in the grid of groups of 32",
       [](Files& f) {
         AddAll(f, "l.weight", "l.weight_scale", "l.weight_scale_2");
         f.file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {64, 4}, Bytes(256, 0x38));
         return std::vector<std::string>{"inspect", "w.safetensors"};
       },
       1,
       {"256 bytes of scales; 64x128 in 1x16 blocks has 64x8 scales"}},
      {"a tensor scale of 0, and an input scale that one matrix lacks",
       [](Files& f) {
         for (const char* name : {"e.0.up", "e.1.up", "e.2.up"}) {
           AddModelOpt(&f.file, name, Weight().x);
         }
         f.file.tensors["e.1.up.weight_scale_2"] = NumbersTensor({}, {0.0f});
         f.file.tensors.erase("e.2.up.input_scale");
         return kCheck;
       },
       1,
       {"tensor-scale-zero (1): ", "e.1.up.weight_scale_2 is 0",
        "input-scale-missing (1): ", "e.2.up: none is stored"}},
  });
}

TEST_CASE("A wrong name is answered in one line, with what it may have been", "[e2e][files]") {
  const auto command = [](std::vector<std::string> arguments) {
    return [arguments = std::move(arguments)](Files& f) {
      for (const char* name : {"model.layers.0.q_proj", "model.layers.0.up_proj"}) {
        AddModelOpt(&f.file, name, Weight().x);
      }
      f.Number("x.npy", Weight().x);
      return arguments;
    };
  };
  CheckFaults({
      {"a matrix",
       command({"inspect", "w.safetensors#model.layers.0.q_prj"}),
       1,
       {"has no quantized matrix model.layers.0.q_prj; did you mean \"model.layers.0.q_proj\"?"}},
      {"a matrix without its prefix",
       command({"verify", "--dialect", "nvfp4.modelopt", "--input", "x.npy", "--stored",
                "w.safetensors#layers.0.up_proj"}),
       2,
       {"did you mean \"model.layers.0.up_proj\"?"}},
      {"a tensor",
       command({"identify", "--input", "w.safetensors#model.layers.0.q_proj.input_scal", "--stored",
                "w.safetensors#model.layers.0.q_proj"}),
       2,
       {"did you mean \"model.layers.0.q_proj.input_scale\""}},
      {"a file",
       command({"check", "w.safetensor"}),
       2,
       {"w.safetensor: is not there; did you mean \"w.safetensors\"?"}},
      {"an original",
       command({"check", "w.safetensors", "--original", "y.npz"}),
       2,
       {"y.npz: is not there"}},
      {"an alpha",
       command({"verify", "gemm", "w.safetensors#model.layers.0.q_proj",
                "w.safetensors#model.layers.0.up_proj", "x.npy", "--alpha", "kernal"}),
       2,
       {"--alpha kernal: is not a finite number; did you mean \"kernel\"?"}},
      {"a dialect",
       command({"explain", "--dialect", "nvfp4.modlopt", "--input", "x.npy", "--stored",
                "w.safetensors#model.layers.0.q_proj"}),
       2,
       {"did you mean \"nvfp4.modelopt\"?"}},
  });
}

// A kernel's bytes of 64x128 numbers, for verify, explain and identify.
std::vector<std::string> Judging(std::vector<std::string> command,
                                 const std::vector<std::string>& more = {}) {
  command.insert(command.end(),
                 {"--input", "x.npy", "--codes", "codes.npy", "--scales", "scales.npy"});
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

TEST_CASE("Layouts that exporters get wrong", "[e2e][files]") {
  const auto stored = [](Files& f, Bytes codes, Bytes scales) {
    const Weight w;
    f.Number("x.npy", w.x);
    f.file.tensors["l.weight"] = TensorOf("U8", {64, 64}, codes);
    f.file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {64, 8}, scales);
    f.file.tensors["l.weight_scale_2"] = w.number();
    f.Array("codes.npy", {64, 64}, codes);
    f.Array("scales.npy", {64, 8}, scales);
  };
  const auto swapped = [] {
    Bytes codes = Weight().m.codes;
    for (std::size_t i = 0; i < codes.size(); i += 4) {
      std::swap(codes[i], codes[i + 3]);
      std::swap(codes[i + 1], codes[i + 2]);
    }
    return codes;
  };
  const auto rolled = [] {
    Bytes scales = Weight().m.scales;
    std::rotate(scales.begin(), scales.end() - 8, scales.end());
    return scales;
  };
  const std::vector<std::string> original = {"check", "w.safetensors", "--original", "x.npy"};
  CheckFaults({
      {"the high nibble first",
       [&](Files& f) {
         Bytes codes = Weight().m.codes;
         for (std::uint8_t& b : codes) b = static_cast<std::uint8_t>(b << 4 | b >> 4);
         stored(f, codes, Weight().m.scales);
         return original;
       },
       1,
       {"read with codes high-first and scales linear the SQNR is"}},
      {"words of codes in big-endian order",
       [&](Files& f) {
         stored(f, swapped(), Weight().m.scales);
         return Judging({"identify"});
       },
       1,
       {"No dialect and layout gives these bytes as they are",
        "writes the bytes of every 32-bit word of codes in reverse order"}},
      {"scales a row too low",
       [&](Files& f) {
         stored(f, Weight().m.codes, rolled());
         return Judging({"identify"});
       },
       1,
       {"writes the scales rows too far down: 1 down"}},
      {"scales a row too low are no parts with tensor scales of their own",
       [&](Files& f) {
         stored(f, Weight().m.codes, rolled());
         return original;
       },
       1,
       {"original (1): "},
       {"parts with tensor scales of their own"}},
      {"columns of scales padded to 4, rows not",
       [](Files& f) {
         const Matrix<float> x = NormalMatrix(7, 48, 160);
         StoredMatrix m = Quantize("mxfp8_e4m3.rceil", x, {.codes = CodeOrder::kBytes});
         Bytes padded(48 * 8, 0);
         for (std::size_t r = 0; r < 48; ++r) {
           for (std::size_t c = 0; c < 5; ++c) padded[r * 8 + c] = m.scales[r * 5 + c];
         }
         m.scales = padded;
         f.Kernel(x, m);
         return Judging({"identify"});
       },
       1,
       {"writes the scales row by row, columns padded to 4 and rows not"}},
      {"ComfyUI's marker stands for high nibbles and tiles of scales",
       [](Files& f) {
         const Weight w;
         const StoredMatrix m = Quantize("nvfp4.comfyui", w.x,
                                         {.codes = CodeOrder::kHighFirst,
                                          .scales = ScaleOrder::k128x4,
                                          .tensor_scale = kMultiplier});
         f.Number("x.npy", w.x);
         const std::string marker = R"({"format": "nvfp4"})";
         f.file.tensors["l.weight"] = TensorOf("U8", {64, 64}, m.codes);
         f.file.tensors["l.weight_scale"] = TensorOf("U8", {128, 8}, m.scales);
         f.file.tensors["l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
         f.file.tensors["l.comfy_quant"] =
             TensorOf("U8", {marker.size()}, {marker.begin(), marker.end()});
         return std::vector<std::string>{"verify", "--dialect", "nvfp4.comfyui", "--input",
                                         "x.npy",  "--stored",  "w.safetensors"};
       },
       0,
       {"nvfp4.comfyui: equal"}},
      {"torchao's tiles, which its metadata states",
       [](Files& f) {
         const Weight w;
         const StoredMatrix m =
             Quantize("nvfp4.torchao.inference", w.x,
                      {.scales = ScaleOrder::k128x4, .tensor_scale = kMultiplier});
         f.Number("x.npy", w.x);
         f.file.metadata["l.weight"] =
             R"({"_type": "NVFP4Tensor", "_data": {"block_size": 16, "is_swizzled_scales": true}})";
         f.file.tensors["l._weight_qdata"] = TensorOf("U8", {64, 64}, m.codes);
         f.file.tensors["l._weight_scale"] = TensorOf("F8_E4M3", {128, 8}, m.scales);
         f.file.tensors["l._weight_per_tensor_scale"] = NumbersTensor({}, m.tensor_scale);
         return std::vector<std::string>{"identify", "--input", "x.npy", "--stored",
                                         "w.safetensors"};
       },
       0,
       {"scales 128x4, tensor scale as multiplier", "nvfp4.torchao.inference"}},
  });
}

// Three experts of 32x64 numbers, of unlike amaxes.
struct Three {
  Matrix<float> x{96, 64};
  Bytes codes[3], scales[3];
  std::vector<float> numbers;
  Three() {
    for (std::size_t p = 0; p < 3; ++p) {
      Matrix<float> part = Weights(10 + p, 32, 64, 0.02 * static_cast<double>(p + 1));
      std::copy(part.values.begin(), part.values.end(),
                x.values.begin() + static_cast<std::ptrdiff_t>(p * part.values.size()));
      const StoredMatrix m = Quantize("nvfp4.modelopt", part, {.tensor_scale = kMultiplier});
      codes[p] = m.codes, scales[p] = m.scales;
      numbers.push_back(m.tensor_scale[0]);
    }
  }
  // Writes the parts in an order, with these numbers; w.safetensors has ModelOpt's names.
  void Write(Files& f, const std::vector<std::size_t>& order, const std::vector<float>& n) const {
    Bytes c, s;
    for (const std::size_t p : order) {
      c.insert(c.end(), codes[p].begin(), codes[p].end());
      s.insert(s.end(), scales[p].begin(), scales[p].end());
    }
    f.Number("x.npy", x);
    f.Array("codes.npy", {96, 32}, c);
    f.Array("scales.npy", {96, 4}, s);
    f.NumberArray("n.npy", n);
    f.file.tensors["e"] = TensorOf("U8", {3, 32, 32}, c);
    f.file.tensors["e_weight_scale"] = TensorOf("F8_E4M3", {3, 32, 4}, s);
    f.file.tensors["e_weight_scale_2"] = NumbersTensor({n.size()}, n);
  }
};

TEST_CASE("Parts of a matrix that exporters get wrong", "[e2e][files]") {
  const Three t;
  const std::vector<float> rolled = {t.numbers[2], t.numbers[0], t.numbers[1]};
  const std::vector<std::string> stored = {"verify", "--dialect", "nvfp4.modelopt", "--input",
                                           "x.npy",  "--stored",  "w.safetensors"};
  const std::vector<std::string> parts = {
      "--parts",           "3",          "--tensor-scale", "n.npy",
      "--tensor-scale-is", "multiplier", "--dialect",      "nvfp4.modelopt"};
  CheckFaults({
      {"experts with a number each, judged as one matrix",
       [&](Files& f) {
         t.Write(f, {0, 1, 2}, t.numbers);
         return stored;
       },
       2,
       {"holds 3 tensor scales, one for each 32 rows: --parts 3 judges each part by its own"}},
      {"the same, looked at",
       [&](Files& f) {
         t.Write(f, {0, 1, 2}, t.numbers);
         return std::vector<std::string>{"inspect", "w.safetensors"};
       },
       0,
       {"3 numbers, one for each 32 rows: "}},
      {"the numbers of other experts",
       [&](Files& f) {
         t.Write(f, {0, 1, 2}, rolled);
         return Judging({"verify"}, parts);
       },
       1,
       {"it is the multiplier amax / 2688 of the amax of part 2", "of the amax of part 0",
        "do: store the right number: scales and codes were computed with the right amax"}},
      {"the numbers of other experts, in a checkpoint",
       [&](Files& f) {
         t.Write(f, {0, 1, 2}, rolled);
         return std::vector<std::string>{"check", "w.safetensors", "--original", "x.npy"};
       },
       1,
       {": the tensor scales of other parts"},
       {"tensor scales of their own"}},
      {"experts in another order",
       [&](Files& f) {
         t.Write(f, {0, 2, 1}, {t.numbers[0], t.numbers[2], t.numbers[1]});
         return Judging({"verify"}, parts);
       },
       1,
       {"part 0, rows 0..31: nvfp4.modelopt: equal", "codes and scales are those of part 2",
        "codes and scales are those of part 1", "do: store the parts in the order of the input"}},
      {"parts joined under the first one's number: what explain says of the number",
       [&](Files& f) {
         t.Write(f, {0, 1, 2}, {t.numbers[0]});
         return Judging({"explain"}, {"--tensor-scale", "n.npy", "--tensor-scale-is", "multiplier",
                                      "--dialect", "nvfp4.modelopt"});
       },
       1,
       {"it is the number of a part, see the cause", "rows 0..31, 32..63, 64.."}},
  });
}

TEST_CASE("Values that another program decoded wrongly", "[e2e][files]") {
  const Weight w;
  // The values, from codes and scales that are changed on the way.
  const auto values = [&](auto code, auto scale, float number) {
    Matrix<float> y(64, 128);
    for (std::size_t r = 0; r < 64; ++r) {
      for (std::size_t c = 0; c < 128; ++c) {
        const std::uint8_t byte = w.m.codes[r * 64 + c / 2];
        const unsigned nibble = code(c) ? byte >> 4 : byte & 0xFu;
        y(r, c) = Decode(FormatId::kE2M1, nibble) * (scale(r, c / 16) * number);
      }
    }
    return y;
  };
  const auto odd = [](std::size_t c) { return c % 2 == 1; };
  const auto right = [&](std::size_t r, std::size_t b) {
    return Decode(FormatId::kE4M3, w.m.scales[r * 8 + b]);
  };
  const float m = w.m.tensor_scale[0];
  const auto make = [&](Matrix<float> y) {
    return [y = std::move(y)](Files& f) {
      AddAll(f, "l.weight", "l.weight_scale", "l.weight_scale_2");
      f.Number("y.npy", y);
      return std::vector<std::string>{"check", "w.safetensors", "--values", "y.npy"};
    };
  };
  Matrix<float> magnitudes = values(odd, right, m);
  for (float& y : magnitudes.values) y = std::fabs(y);
  CheckFaults({
      {"right values", make(values(odd, right, m)), 0, {"no findings"}},
      {"without the tensor scale",
       make(values(odd, right, 1.0f)),
       1,
       {"times what the matrix decodes to: the tensor scale is left out"}},
      {"the reciprocal of the tensor scale",
       make(values(odd, right, 1.0f / m)),
       1,
       {"the tensor scale is taken for the other of multiplier and divisor"}},
      {"the nibbles exchanged",
       make(values([](std::size_t c) { return c % 2 == 0; }, right, m)),
       1,
       {"the nibbles of every byte are read high-first"},
       {"no one factor", "left out"}},
      {"without block scales",
       make(values(
           odd, [](std::size_t, std::size_t) { return 1.0f; }, 1.0f)),
       1,
       {"the block scales are left out, and the tensor scale is left out"}},
      {"the scales of the blocks before",
       make(values(
           odd, [&](std::size_t r, std::size_t b) { return right(r, (b + 7) % 8); }, m)),
       1,
       {"every block has the scale of the block before"}},
      {"scales read as E5M2",
       make(values(
           odd,
           [&](std::size_t r, std::size_t b) {
             return Decode(FormatId::kE5M2, w.m.scales[r * 8 + b]);
           },
           m)),
       1,
       {"the block scales are read as E5M2"}},
      {"magnitudes", make(magnitudes), 1, {"the signs are dropped"}},
  });
}

// Bytes of kernels from public reports.
TEST_CASE("Kernels of public reports are told what is wrong", "[e2e]") {
  const Matrix<float> x = NormalMatrix(5, 64, 128);
  const auto with = [&](const char* dialect, auto change) {
    return [&x, dialect, change](Files& f) {
      StoredMatrix m = Quantize(dialect, x);
      change(m);
      f.Kernel(x, m);
    };
  };
  const auto as_bytes = with("mxfp4.rceil", [](StoredMatrix& m) {
    for (std::uint8_t& e : m.scales) {
      e = static_cast<std::uint8_t>(static_cast<std::uint64_t>(std::ldexp(1.0, e - 127)) & 0xFF);
    }
  });
  const auto clamped = [](std::vector<float> row) {
    return [row](Files& f) {
      Matrix<float> line(1, 16);
      line.values = row;
      f.Number("x.npy", line);
      f.Array("codes.npy", {1, 8}, Bytes(8, 0x77));
      f.Array("scales.npy", {1, 1}, {0x7E});
      return Judging({"verify", "--dialect", "nvfp4.modelopt.static"});
    };
  };
  CheckFaults({
      {"scales by value",
       [&](Files& f) {
         as_bytes(f);
         return Judging({"explain", "--dialect", "mxfp4.rceil"});
       },
       1,
       {"stores the scale's value, cut to an integer modulo 256, in place of its byte"}},
      {"scales by value have no layout that is nearest",
       [&](Files& f) {
         as_bytes(f);
         return Judging({"identify"});
       },
       1,
       {"0 of 8192 codes and"},
       {"scales 128x4: "}},
      {"x * 6 / b",
       [&](Files& f) {
         StoredMatrix m = Quantize("nvfp4.te", x, {.tensor_scale = TensorScaleConvention::kNone});
         for (std::size_t i = 0; i < m.scales.size(); ++i) {
           float b = 0.0f;
           for (std::size_t k = 0; k < 16; ++k) b = std::max(b, std::fabs(x.values[i * 16 + k]));
           for (std::size_t k = 0; k < 16; k += 2) {
             const auto code = [&](std::size_t at) {
               return Encode(FormatId::kE2M1, x.values[i * 16 + at] * 6.0f / b);
             };
             m.codes[(i * 16 + k) / 2] = static_cast<std::uint8_t>(code(k) | code(k + 1) << 4);
           }
         }
         f.Kernel(x, m);
         return Judging({"explain", "--dialect", "nvfp4.te"}, {"--tensor-scale-is", "none"});
       },
       1,
       {"The kernel computes x * 6 / b, without the stored scale. (elements-over-amax)"},
       {"FP16"}},
      {"ModelOpt's static path for zeros",
       clamped(std::vector<float>(16, 0.0f)),
       0,
       {"nvfp4.modelopt.static: equal"}},
      {"ModelOpt's static path for FLT_MAX",
       clamped(std::vector<float>(16, 3.4028235e38f)),
       0,
       {"nvfp4.modelopt.static: equal"}},
      {"scales cast without a clamp",
       [&](Files& f) {
         StoredMatrix m =
             Quantize("nvfp4.modelopt.static", x, {.tensor_scale = kMultiplier}, {.amax = {0.5f}});
         for (std::uint8_t& s : m.scales) s = s == 0x7E ? 0x7F : s;
         f.Kernel(x, m);
         return Judging({"verify", "--dialect", "nvfp4.modelopt.static", "--amax", "0.5"});
       },
       1,
       {"of them are NaN where the scale saturates",
        "do: clamp scales to 448 before they are "
        "cast"}},
      {"ModelOpt's MXFP4 is a dialect of its own",
       [&](Files& f) {
         Matrix<float> zeros = x;
         for (std::size_t i = 0; i < zeros.values.size(); i += 7) zeros.values[i] = 0.0f;
         f.Kernel(zeros, Quantize("mxfp4.modelopt", zeros));
         return Judging({"identify"});
       },
       0,
       {"mxfp4.modelopt"},
       {"mxfp4.rceil"}},
      {"FP8 by the amax of another tensor, stored with it",
       [&](Files& f) {
         const StoredMatrix m =
             Quantize("fp8_e4m3", x, {.codes = CodeOrder::kBytes}, {.amax = {1.25f}});
         f.Kernel(x, m);
         f.NumberArray("n.npy", m.tensor_scale);
         return std::vector<std::string>{"verify",    "--dialect",      "fp8_e4m3",
                                         "--input",   "x.npy",          "--codes",
                                         "codes.npy", "--tensor-scale", "n.npy"};
       },
       1,
       {"do: give the kernel this tensor's amax: scales and codes were computed with the stored "
        "number's amax"},
       {"store the right number"}},
      {"one impossible code among stochastic ones",
       [&](Files& f) {
         const Matrix<float> large = NormalMatrix(6, 256, 256);
         const Dialect& d = *FindDialect("nvfp4.te.stochastic");
         std::vector<std::uint16_t> random(large.values.size());
         const RandomStream stream{1, 2, 3};
         for (std::size_t i = 0; i < random.size(); ++i) {
           random[i] = static_cast<std::uint16_t>(stream.Bits32(i) >> 16);
         }
         StoredMatrix m = Store(d, QuantizeAs(d, large.View(), {.random = random}), {});
         m.codes[5] ^= 0x08;
         f.Kernel(large, m);
         return Judging({"verify", "--dialect", "nvfp4.te.stochastic", "--stochastic"},
                        {"--tensor-scale-is", "none"});
       },
       1,
       {"1 of "}},
  });
}

}  // namespace
}  // namespace fp4lab
