// Matrices of table and integer codes in groups: read under every naming, judged, compared. The
// files are packed here, without the library's reader.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/checkpoint/check.h"
#include "fp4lab/checkpoint/groups/group_matrix.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "tests/checkpoint/files.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::size_t kRows = 48, kCols = 128;

template <class T>
SafetensorsTensor Typed(std::string dtype, std::vector<std::size_t> shape,
                        const std::vector<T>& values) {
  const auto raw = std::as_bytes(std::span(values));
  return {std::move(dtype), std::move(shape), ByteArray(raw.begin(), raw.end())};
}
SafetensorsTensor TextTensor(const std::string& text) {
  return TensorOf("U8", {text.size()}, {text.begin(), text.end()});
}

// A file, what was quantized, and what the file decodes to.
struct Packed {
  SafetensorsFile file;
  Matrix<float> x = Weights(3, kRows, kCols), decoded = Matrix<float>(kRows, kCols);
};

// ---- bitsandbytes

std::array<float, 16> TableOf(bool nf4) {
  if (nf4) {
    return {-1.0f,         -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
            -0.091050036f, 0.0f,         0.0795803f,   0.1609302f,   0.2461123f,   0.33791524f,
            0.44070983f,   0.562617f,    0.72295684f,  1.0f};
  }
  std::array<float, 16> t = {};
  const float twelfths[8] = {0, 0.0625f, 8, 12, 4, 6, 2, 3};
  for (std::size_t i = 0; i < 16; ++i) t[i] = twelfths[i % 8] / 12.0f * (i < 8 ? 1.0f : -1.0f);
  return t;
}

Packed Bitsandbytes(bool nf4, std::size_t block, bool nested = false) {
  Packed p;
  const std::array<float, 16> table = TableOf(nf4);
  const std::size_t n = p.x.values.size();
  std::vector<float> absmax(n / block);
  for (std::size_t i = 0; i < n; ++i) {
    absmax[i / block] = std::max(absmax[i / block], std::fabs(p.x.values[i]));
  }
  const std::string name = "l.weight", type = nf4 ? "nf4" : "fp4";
  std::string state = R"({"quant_type": ")" + type + R"(", "blocksize": )" + std::to_string(block) +
                      R"(, "dtype": "bfloat16", "shape": [48, 128])";
  if (nested) {
    // 256 numbers from 0 to 1, of blocks of 32 scales, above an offset.
    std::vector<float> map(256);
    for (std::size_t i = 0; i < 256; ++i) map[i] = static_cast<float>(i) / 255.0f;
    const float offset = 0.01f;
    std::vector<float> outer(absmax.size() / 32);
    std::vector<std::uint8_t> bytes(absmax.size());
    for (std::size_t i = 0; i < absmax.size(); ++i) {
      outer[i / 32] = std::max(outer[i / 32], absmax[i] - offset);
    }
    for (std::size_t i = 0; i < absmax.size(); ++i) {
      bytes[i] =
          static_cast<std::uint8_t>(std::lround((absmax[i] - offset) / outer[i / 32] * 255.0f));
      absmax[i] = map[bytes[i]] * outer[i / 32] + offset;
    }
    p.file.tensors[name + ".absmax"] = TensorOf("U8", {bytes.size()}, bytes);
    p.file.tensors[name + ".nested_absmax"] = NumbersTensor({outer.size()}, outer);
    p.file.tensors[name + ".nested_quant_map"] = NumbersTensor({256}, map);
    state += R"(, "nested_blocksize": 32, "nested_dtype": "float32", "nested_offset": 0.01)";
  } else {
    p.file.tensors[name + ".absmax"] = NumbersTensor({absmax.size()}, absmax);
  }
  std::vector<std::uint8_t> codes(n / 2);
  for (std::size_t i = 0; i < n; ++i) {
    const float scale = absmax[i / block];
    std::uint8_t best = 0;
    for (std::uint8_t code = 1; code < 16; ++code) {
      if (std::fabs(table[code] * scale - p.x.values[i]) <
          std::fabs(table[best] * scale - p.x.values[i])) {
        best = code;
      }
    }
    codes[i / 2] |= static_cast<std::uint8_t>(i % 2 == 0 ? best << 4 : best);
    p.decoded.values[i] = table[best] * scale;
  }
  p.file.tensors[name] = TensorOf("U8", {n / 2, 1}, codes);
  p.file.tensors[name + ".quant_map"] = NumbersTensor({16}, {table.begin(), table.end()});
  p.file.tensors[name + ".quant_state.bitsandbytes__" + type] = TextTensor(state + "}");
  return p;
}

// ---- integers

// Codes of 4 bits in groups of 32 columns, with a zero of 8 or of the group's own.
struct Integers {
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(kRows * kCols);
  std::vector<float> scales = std::vector<float>(kRows * 4);
  std::vector<std::uint8_t> zeros = std::vector<std::uint8_t>(kRows * 4, 8);

  Integers(const Matrix<float>& x, bool own_zeros, Matrix<float>* decoded) {
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t g = 0; g < 4; ++g) {
        const float* at = &x.values[r * kCols + g * 32];
        const float low = *std::min_element(at, at + 32), high = *std::max_element(at, at + 32);
        float s = own_zeros ? (high - low) / 15.0f : std::max(-low, high) / 7.0f;
        s = Decode(FormatId::kFP16, Encode(FormatId::kFP16, s));
        scales[r * 4 + g] = s;
        if (own_zeros) zeros[r * 4 + g] = static_cast<std::uint8_t>(std::lround(-low / s));
        for (std::size_t c = 0; c < 32; ++c) {
          const float zero = zeros[r * 4 + g];
          const float code = std::clamp(std::nearbyint(at[c] / s) + zero, 0.0f, 15.0f);
          codes[r * kCols + g * 32 + c] = static_cast<std::uint8_t>(code);
          decoded->values[r * kCols + g * 32 + c] = (code - zero) * s;
        }
      }
    }
  }
};

std::uint32_t WordOf(const std::function<std::uint8_t(std::size_t)>& code) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 8; ++i) word |= static_cast<std::uint32_t>(code(i)) << (4 * i);
  return word;
}

SafetensorsTensor HalfScales(const std::vector<float>& scales, bool transposed) {
  std::vector<std::uint16_t> halves(kRows * 4);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t g = 0; g < 4; ++g) {
      halves[transposed ? g * kRows + r : r * 4 + g] =
          static_cast<std::uint16_t>(Encode(FormatId::kFP16, scales[r * 4 + g]));
    }
  }
  return transposed ? Typed("F16", {4, kRows}, halves) : Typed("F16", {kRows, 4}, halves);
}

Packed Gptq(bool own_zeros, std::uint8_t minus = 1) {
  Packed p;
  const Integers q(p.x, own_zeros, &p.decoded);
  std::vector<std::uint32_t> words(kCols / 8 * kRows), zeros(4 * kRows / 8);
  for (std::size_t w = 0; w < kCols / 8; ++w) {
    for (std::size_t r = 0; r < kRows; ++r) {
      words[w * kRows + r] = WordOf([&](std::size_t i) { return q.codes[r * kCols + w * 8 + i]; });
    }
  }
  for (std::size_t g = 0; g < 4; ++g) {
    for (std::size_t w = 0; w < kRows / 8; ++w) {
      zeros[g * (kRows / 8) + w] = WordOf([&](std::size_t i) {
        return static_cast<std::uint8_t>((q.zeros[(w * 8 + i) * 4 + g] - minus) & 15);
      });
    }
  }
  std::vector<std::uint32_t> order(kCols);
  for (std::size_t c = 0; c < kCols; ++c) order[c] = static_cast<std::uint32_t>(c / 32);
  p.file.tensors["l.qweight"] = Typed("I32", {kCols / 8, kRows}, words);
  p.file.tensors["l.qzeros"] = Typed("I32", {4, kRows / 8}, zeros);
  p.file.tensors["l.scales"] = HalfScales(q.scales, true);
  p.file.tensors["l.g_idx"] = Typed("I32", {kCols}, order);
  return p;
}

Packed Awq() {
  Packed p;
  const Integers q(p.x, true, &p.decoded);
  const std::size_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<std::uint32_t> words(kCols * kRows / 8), zeros(4 * kRows / 8);
  for (std::size_t w = 0; w < kRows / 8; ++w) {
    for (std::size_t c = 0; c < kCols; ++c) {
      words[c * (kRows / 8) + w] =
          WordOf([&](std::size_t i) { return q.codes[(w * 8 + order[i]) * kCols + c]; });
    }
    for (std::size_t g = 0; g < 4; ++g) {
      zeros[g * (kRows / 8) + w] =
          WordOf([&](std::size_t i) { return q.zeros[(w * 8 + order[i]) * 4 + g]; });
    }
  }
  p.file.tensors["l.qweight"] = Typed("I32", {kCols, kRows / 8}, words);
  p.file.tensors["l.qzeros"] = Typed("I32", {4, kRows / 8}, zeros);
  p.file.tensors["l.scales"] = HalfScales(q.scales, true);
  return p;
}

SafetensorsTensor RowWords(const Integers& q, const char* dtype) {
  std::vector<std::uint32_t> words(kRows * kCols / 8);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = WordOf([&](std::size_t k) { return q.codes[i * 8 + k]; });
  }
  return Typed(dtype, {kRows, kCols / 8}, words);
}

Packed PackQuantized(bool own_zeros) {
  Packed p;
  const Integers q(p.x, own_zeros, &p.decoded);
  p.file.tensors["l.weight_packed"] = RowWords(q, "I32");
  p.file.tensors["l.weight_scale"] = HalfScales(q.scales, false);
  p.file.tensors["l.weight_shape"] = Typed("I64", {2}, std::vector<std::int64_t>{kRows, kCols});
  if (own_zeros) {
    std::vector<std::uint32_t> zeros(kRows / 8 * 4);
    for (std::size_t w = 0; w < kRows / 8; ++w) {
      for (std::size_t g = 0; g < 4; ++g) {
        zeros[w * 4 + g] = WordOf([&](std::size_t i) { return q.zeros[(w * 8 + i) * 4 + g]; });
      }
    }
    p.file.tensors["l.weight_zero_point"] = Typed("I32", {kRows / 8, 4}, zeros);
  }
  return p;
}

Packed Mlx() {
  Packed p;
  const Integers q(p.x, true, &p.decoded);
  std::vector<float> biases(q.scales.size());
  for (std::size_t i = 0; i < biases.size(); ++i) biases[i] = -q.zeros[i] * q.scales[i];
  p.file.tensors["l.weight"] = RowWords(q, "U32");
  p.file.tensors["l.scales"] = NumbersTensor({kRows, 4}, q.scales);
  p.file.tensors["l.biases"] = NumbersTensor({kRows, 4}, biases);
  return p;
}

CheckReport Checked(const Packed& p) {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "q.safetensors", p.file);
  WriteNpy(folder / "x.npy", MakeNpyArray<float>({kRows, kCols}, p.x.values));
  WriteNpy(folder / "y.npy", MakeNpyArray<float>({kRows, kCols}, p.decoded.values));
  return CheckCheckpoint(folder / "q.safetensors",
                         {.original = folder / "x.npy", .values = folder / "y.npy"});
}

TEST_CASE("Codes in groups are read under every naming, and are clean", "[checkpoint]") {
  struct Row {
    const char *naming, *formula, *element;
    Packed packed;
    double least_db;
  };
  const std::vector<Row> rows = {
      {"bitsandbytes", "NF4, blocks of 64", "NF4", Bitsandbytes(true, 64), 19},
      {"bitsandbytes", "NF4, blocks of 32", "NF4", Bitsandbytes(true, 32, true), 19},
      {"bitsandbytes", "FP4 of bitsandbytes, blocks of 64", "FP4 of bitsandbytes",
       Bitsandbytes(false, 64), 16},
      {"gptq", "INT4, groups of 32", "INT4", Gptq(false), 17},
      {"gptq", "INT4, groups of 32", "INT4", Gptq(true), 18},
      {"awq", "INT4, groups of 32", "INT4", Awq(), 18},
      {"pack-quantized", "INT4, groups of 32", "INT4", PackQuantized(false), 17},
      {"pack-quantized", "INT4, groups of 32", "INT4", PackQuantized(true), 18},
      {"mlx-affine", "INT4, groups of 32", "INT4", Mlx(), 18},
  };
  for (const Row& row : rows) {
    CAPTURE(row.naming, row.formula);
    const CheckReport report = Checked(row.packed);
    CAPTURE(ReportText(report));
    REQUIRE(report.matrices.size() == 1);
    const CheckedMatrix& m = report.matrices[0];
    CHECK(m.name == "l");
    CHECK(m.naming == row.naming);
    CHECK(m.formula == row.formula);
    CHECK(ReportJson(report)["matrices"][0]["element"] == row.element);
    CHECK(report.findings.empty());
    CHECK((m.reading.rows == kRows && m.reading.cols == kCols));
    REQUIRE((m.values && m.original));
    CHECK(m.values->different == 0);
    CHECK(m.original->readings[0].sqnr_db > row.least_db);
    CHECK_THAT(m.original->dialect, ContainsSubstring("to nearest"));
  }
}

struct Fault {
  const char* finding;
  const char* text;
  std::function<Packed()> make;
};

// Changes a number of an F32 tensor.
void SetNumber(Packed* p, const char* name, std::size_t index, float value) {
  auto bytes = p->file.tensors[name].bytes.Change();
  std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

TEST_CASE("Faults of codes in groups are found", "[checkpoint]") {
  const auto nf4 = [](const std::function<void(Packed&)>& change) {
    return [change] {
      Packed p = Bitsandbytes(true, 64);
      change(p);
      return p;
    };
  };
  const auto of = [](Packed (*make)(), const std::function<void(Packed&)>& change) {
    return [make, change] {
      Packed p = make();
      change(p);
      return p;
    };
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Fault> faults = {
      {"zero-scales", "1 of 96 absmaxes are 0 although the codes of their groups differ",
       nf4([](Packed& p) { SetNumber(&p, "l.weight.absmax", 5, 0); })},
      {"nan-scales", "2 of 96 absmaxes are NaN or Inf", nf4([&](Packed& p) {
         SetNumber(&p, "l.weight.absmax", 5, kNan);
         SetNumber(&p, "l.weight.absmax", 6, INFINITY);
       })},
      {"negative-scales", "1 of 96 absmaxes have a sign",
       nf4([](Packed& p) { SetNumber(&p, "l.weight.absmax", 5, -0.05f); })},
      {"constant-scales", "all 96 absmaxes are 1", nf4([](Packed& p) {
         p.file.tensors["l.weight.absmax"] = NumbersTensor({96}, std::vector<float>(96, 1.0f));
       })},
      {"grid", "l.weight.absmax is F32 95; 48x128 in blocks of 64 has 96", nf4([](Packed& p) {
         p.file.tensors["l.weight.absmax"] = NumbersTensor({95}, std::vector<float>(95, 1.0f));
       })},
      {"grid", "l.weight is U8 3071x1; 48x128 takes two codes a byte", nf4([](Packed& p) {
         p.file.tensors["l.weight"] = TensorOf("U8", {3071, 1}, std::vector<std::uint8_t>(3071, 3));
       })},
      {"config", "l.weight.quant_map is not the table of NF4: code 0 is 0, not -1",
       nf4([](Packed& p) {
         const std::array<float, 16> fp4 = TableOf(false);
         p.file.tensors["l.weight.quant_map"] = NumbersTensor({16}, {fp4.begin(), fp4.end()});
       })},
      {"config", "its quant_state states \"fp4\" under the name nf4", nf4([](Packed& p) {
         p.file.tensors["l.weight.quant_state.bitsandbytes__nf4"] =
             TextTensor(R"({"quant_type": "fp4", "blocksize": 64, "shape": [48, 128]})");
       })},
      {"unreadable", "its quant_state states no blocksize, or no shape of two sizes",
       nf4([](Packed& p) {
         p.file.tensors["l.weight.quant_state.bitsandbytes__nf4"] =
             TextTensor(R"({"blocksize": 64, "shape": [6144]})");
       })},
      {"unreadable", "with a JSON object", nf4([](Packed& p) {
         p.file.tensors["l.weight.quant_state.bitsandbytes__nf4"] = TextTensor("nf4");
       })},
      {"unreadable", "its absmax is U8, but nested_absmax",
       [] {
         Packed p = Bitsandbytes(true, 32, true);
         p.file.tensors.erase("l.weight.nested_absmax");
         return p;
       }},
      {"constant-codes", "every byte of the codes is 0x77", nf4([](Packed& p) {
         p.file.tensors["l.weight"] =
             TensorOf("U8", {3072, 1}, std::vector<std::uint8_t>(3072, 0x77));
       })},
      {"original", "read with the low half of every byte first the SQNR is", nf4([](Packed& p) {
         for (std::byte& b : p.file.tensors["l.weight"].bytes.Change()) b = b << 4 | b >> 4;
       })},
      {"values", "times what the matrix decodes to", nf4([](Packed& p) {
         for (float& y : p.decoded.values) y *= 0.5f;
       })},
      {"original", "read with zeros that are one less the SQNR is", [] { return Gptq(true, 0); }},
      {"grid", "l.qzeros is I32 3x6; 4 groups of 48 outputs take 4x6 words of 4 bits",
       of([] { return Gptq(false); },
          [](Packed& p) {
            p.file.tensors["l.qzeros"] =
                Typed("I32", {3, 6}, std::vector<std::uint32_t>(18, 0x77777777));
          })},
      {"grid", "l.g_idx names group 9 of 4",
       of([] { return Gptq(false); },
          [](Packed& p) {
            auto b = p.file.tensors["l.g_idx"].bytes.Change();
            b[4] = std::byte{9};
          })},
      {"zero-codes", "every code is 0",
       of([] { return PackQuantized(true); },
          [](Packed& p) {
            for (std::byte& b : p.file.tensors["l.weight_packed"].bytes.Change()) b = std::byte{0};
          })},
      {"grid", "l.weight_packed is I32 48x16; 48x96 of 4 bits takes 48x12 words",
       of([] { return PackQuantized(true); },
          [](Packed& p) {
            p.file.tensors["l.weight_shape"] = Typed("I64", {2}, std::vector<std::int64_t>{48, 96});
          })},
      {"grid", "l.weight_shape has the size -48",
       of([] { return PackQuantized(true); },
          [](Packed& p) {
            p.file.tensors["l.weight_shape"] =
                Typed("I64", {2}, std::vector<std::int64_t>{-48, 128});
          })},
      {"original", "read with zeros that are one",
       of([] { return PackQuantized(true); },
          [](Packed& p) {  // the zeros of a symmetric matrix, one off
            p.file.tensors["l.weight_zero_point"] = Typed("I32", {6, 4}, [&] {
              std::vector<std::uint32_t> z(24);
              std::memcpy(z.data(), p.file.tensors["l.weight_zero_point"].bytes.data(), 96);
              for (std::uint32_t& w : z) w -= 0x11111111;
              return z;
            }());
          })},
      {"grid", "l.biases is F32 24x8; the scales are 48x4",
       of(&Mlx,
          [](Packed& p) {
            p.file.tensors["l.biases"].shape = {24, 8};
          })},
  };
  for (const Fault& fault : faults) {
    CAPTURE(fault.finding, fault.text);
    const CheckReport report = Checked(fault.make());
    CAPTURE(ReportText(report));
    bool found = false;
    for (const Finding& f : report.findings) {
      found = found ||
              (Named(f.kind).name == fault.finding && f.text.find(fault.text) != std::string::npos);
    }
    CHECK(found);
  }
}

TEST_CASE("A matrix in groups beside one in NVFP4 and one in shards", "[checkpoint]") {
  const TemporaryFolder folder;
  Packed p = Bitsandbytes(true, 64);
  SafetensorsFile first, second;
  AddModelOpt(&first, "a", p.x);
  for (const auto& [name, tensor] : p.file.tensors) {
    (name.ends_with("absmax") ? second : first).tensors[name] = tensor;
  }
  WriteSafetensors(folder / "1.safetensors", first);
  WriteSafetensors(folder / "2.safetensors", second);
  const CheckReport report = CheckCheckpoint(folder.path());
  REQUIRE(report.matrices.size() == 2);
  CHECK(report.matrices[0].name == "a");
  CHECK(FindingsOf(report) == std::vector<std::string>{"split@l"});
}

}  // namespace
}  // namespace fp4lab
