// Matrices whose bytes are right, at wrong places or under wrong scales: what `check` says of them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/e2e/file_faults.h"

namespace fp4lab {
namespace {

using Rows = std::function<std::size_t(std::size_t)>;

const std::vector<std::string> kOriginal = {"check", "w.safetensors", "--original",
                                            "o.safetensors"};

// The original o.safetensors: a tensor NAME.weight for each matrix.
void WriteOriginals(const Files& f, const std::vector<std::string>& names,
                    const std::vector<Matrix<float>>& matrices) {
  SafetensorsFile file;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Matrix<float>& x = matrices[i];
    file.tensors[names[i] + ".weight"] = NumbersTensor({x.rows, x.cols}, x.values);
  }
  WriteSafetensors(f.Path("o.safetensors"), file);
}

Matrix<float> Permuted(const Matrix<float>& x, const Rows& from) {
  Matrix<float> y(x.rows, x.cols);
  for (std::size_t r = 0; r < x.rows; ++r) {
    std::copy_n(&x(from(r), 0), x.cols, &y(r, 0));
  }
  return y;
}

// The matrix l of ModelOpt's names, quantized from `stored`; its original is x.
std::vector<std::string> Stored(Files& f, const Matrix<float>& x, const Matrix<float>& stored) {
  WriteOriginals(f, {"l"}, {x});
  AddModelOpt(&f.file, "l", stored);
  return kOriginal;
}

constexpr std::size_t kRows = 128, kCols = 256;

TEST_CASE("Rows and columns in another order", "[e2e][files]") {
  const Matrix<float> x = Weights(31, kRows, kCols);
  const auto rows = [&](Rows from) {
    return [&x, from](Files& f) { return Stored(f, x, Permuted(x, from)); };
  };
  const auto columns = [&](Rows from) {
    return [&x, from](Files& f) {
      Matrix<float> y(x.rows, x.cols);
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.cols; ++c) y(r, c) = x(r, from(c));
      }
      return Stored(f, x, y);
    };
  };
  const std::size_t half = kRows / 2;
  CheckFaults({
      {"as they are", rows([](std::size_t r) { return r; }), 0, {"l: equal", "no findings"}},
      {"gate and up exchanged",
       rows([=](std::size_t r) { return (r + half) % kRows; }),
       1,
       {"l: stored rows 0..63 are the original's rows 64..127, rows 64..127 its rows 0..63"},
       {"no reading"}},
      {"k before q, of other sizes",
       rows([](std::size_t r) { return r < 32   ? r + 64
                                       : r < 96 ? r - 32
                                                : r; }),
       1,
       {"stored rows 0..31 are the original's rows 64..95, rows 32..95 its rows 0..63, rows "
        "96..127 its rows 96..127"}},
      {"gate and up interleaved",
       rows([=](std::size_t r) { return r % 2 * half + r / 2; }),
       1,
       {"the rows are interleaved: stored rows 0, 2, 4, ... are the first half"}},
      {"gate and up interleaved in pieces of 16",
       rows([=](std::size_t r) { return r / 16 % 2 * half + r / 32 * 16 + r % 16; }),
       1,
       {"pieces of 16 rows are interleaved: stored pieces 0, 2, 4, ... are the first half"}},
      {"llama.cpp's order of rotary embeddings, heads of 32",
       rows([](std::size_t r) { return r / 32 * 32 + r % 2 * 16 + r % 32 / 2; }),
       1,
       {"in every 32 rows, the rows are interleaved", "as for rotary embeddings"}},
      {"and back",
       rows([](std::size_t r) {
         const std::size_t k = r % 32;
         return r / 32 * 32 + (k < 16 ? 2 * k : 2 * (k - 16) + 1);
       }),
       1,
       {"in every 32 rows, the rows are joined", "as for rotary embeddings"}},
      {"reversed",
       rows([](std::size_t r) { return kRows - 1 - r; }),
       1,
       {"the rows stand in reverse order"}},
      {"rows by a stride that no rule makes",
       rows([](std::size_t r) { return r * 37 % kRows; }),
       1,
       {"the rows are in another order: stored rows 0, 1, 2, 3 are the original's rows 0, 37, 74, "
        "111"}},
      {"columns in the order of activations",
       columns([](std::size_t c) { return c * 91 % kCols; }),
       1,
       {"the columns are in another order: stored columns 1, 2, 3, 4 are the original's columns "
        "91, 182, 17, 108"}},
      {"the transpose of a square matrix",
       [](Files& f) {
         const Matrix<float> square = Weights(32, 128, 128);
         Matrix<float> turned(128, 128);
         for (std::size_t i = 0; i < turned.values.size(); ++i) {
           turned.values[i] = square(i % 128, i / 128);
         }
         return Stored(f, square, turned);
       },
       1,
       {"l: it is the transpose of the original"}},
      {"an original of (in, out) is read, and that is said",
       [&](Files& f) {
         Matrix<float> turned(kCols, kRows);
         for (std::size_t r = 0; r < kRows; ++r) {
           for (std::size_t c = 0; c < kCols; ++c) turned(c, r) = x(r, c);
         }
         return Stored(f, turned, x);
       },
       0,
       {"l: equal", "the original's columns are its rows"}},
      {"a Hadamard transform of 16 columns",
       [&](Files& f) {
         Matrix<float> y = x;
         for (std::size_t i = 0; i < y.values.size(); ++i) {
           const std::size_t k = i % 16, first = i - k;
           float sum = 0;
           for (std::size_t j = 0; j < 16; ++j) {
             const bool odd = std::popcount(static_cast<unsigned>(k & j)) % 2 == 1;
             sum += odd ? -x.values[first + j] : x.values[first + j];
           }
           y.values[i] = sum / 4;
         }
         return Stored(f, x, y);
       },
       1,
       {"l: it is the original under a Hadamard transform of 16 columns"}},
      {"numbers of another version of the model",
       [&](Files& f) {
         Matrix<float> y = x;
         const Matrix<float> noise = NormalMatrix(5, kRows, kCols, 0.01);
         for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] += noise.values[i];
         return Stored(f, x, y);
       },
       1,
       {"its rows stand at their places, but are other numbers: their mean cosine"},
       {"the scales"}},
      {"numbers that have nothing to do with it",
       [&](Files& f) { return Stored(f, x, Weights(77, kRows, kCols)); },
       1,
       {"l: no reading of the bytes is near the original"}},
  });
}

TEST_CASE("Matrices, experts and their scales at the places of others", "[e2e][files]") {
  std::vector<Matrix<float>> x;
  for (std::size_t i = 0; i < 4; ++i) x.push_back(Weights(41 + i, 64, 128, 0.02));
  const auto named = [](const std::string& stem, const std::string& leaf) {
    std::vector<std::string> names;
    for (int i = 0; i < 4; ++i) names.push_back(stem + std::to_string(i) + leaf);
    return names;
  };
  const std::vector<std::string> experts = named("model.layers.0.mlp.experts.", ".down_proj");
  // Stacked experts: codes, scales and numbers of the parts in these orders.
  const auto stacked = [&](std::vector<std::size_t> codes, std::vector<std::size_t> scales) {
    return [&x, codes, scales](Files& f) {
      Matrix<float> all(256, 128);
      Bytes c, s;
      std::vector<float> numbers;
      for (std::size_t p = 0; p < 4; ++p) {
        std::copy(x[p].values.begin(), x[p].values.end(), &all(p * 64, 0));
        const StoredMatrix a =
            Quantize("nvfp4.modelopt", x[codes[p]], {.tensor_scale = kMultiplier});
        const StoredMatrix b =
            Quantize("nvfp4.modelopt", x[scales[p]], {.tensor_scale = kMultiplier});
        c.insert(c.end(), a.codes.begin(), a.codes.end());
        s.insert(s.end(), b.scales.begin(), b.scales.end());
        numbers.push_back(a.tensor_scale[0]);
      }
      WriteOriginals(f, {"e"}, {all});
      f.file.tensors["e"] = TensorOf("U8", {4, 64, 64}, c);
      f.file.tensors["e_weight_scale"] = TensorOf("F8_E4M3", {4, 64, 8}, s);
      f.file.tensors["e_weight_scale_2"] = NumbersTensor({4}, numbers);
      return kOriginal;
    };
  };
  CheckFaults({
      {"k and v exchanged",
       [&](Files& f) {
         const std::string at = "model.layers.0.self_attn.";
         WriteOriginals(f, {at + "q_proj", at + "k_proj", at + "v_proj"}, {x[0], x[1], x[2]});
         AddModelOpt(&f.file, at + "q_proj", x[0]);
         AddModelOpt(&f.file, at + "k_proj", x[2]);
         AddModelOpt(&f.file, at + "v_proj", x[1]);
         return kOriginal;
       },
       1,
       {"k_proj: it is the original's model.layers.0.self_attn.v_proj.weight",
        "v_proj: it is the original's model.layers.0.self_attn.k_proj.weight", "q_proj: equal"}},
      {"the matrices of experts in another order",
       [&](Files& f) {
         WriteOriginals(f, experts, x);
         for (std::size_t i = 0; i < 4; ++i) {
           AddModelOpt(&f.file, experts[i], x[i == 1 ? 2 : i == 2 ? 1 : i]);
         }
         return kOriginal;
       },
       1,
       {"experts.1.down_proj: it is the original's model.layers.0.mlp.experts.2.down_proj.weight"}},
      {"the scales of the expert before",
       [&](Files& f) {
         WriteOriginals(f, experts, x);
         for (std::size_t i = 0; i < 4; ++i) {
           AddModelOpt(&f.file, experts[i], x[i]);
           const StoredMatrix other =
               Quantize("nvfp4.modelopt", x[(i + 3) % 4], {.tensor_scale = kMultiplier});
           f.file.tensors[experts[i] + ".weight_scale"] =
               TensorOf("F8_E4M3", {64, 8}, other.scales);
         }
         return kOriginal;
       },
       1,
       {"experts.1.down_proj: the scales do not fit the codes, and those of "
        "model.layers.0.mlp.experts.2.down_proj do",
        "experts.3.down_proj: the scales do not fit the codes, and those of "
        "model.layers.0.mlp.experts.0.down_proj do"},
       {"of another tensor"}},
      {"stacked experts as they are", stacked({0, 1, 2, 3}, {0, 1, 2, 3}), 0, {"e: equal"}},
      {"stacked experts in another order",
       stacked({0, 2, 1, 3}, {0, 2, 1, 3}),
       1,
       {"the parts are in another order: stored part 1 is the original's part 2, part 2 is the "
        "original's part 1"}},
      {"stacked experts with the scales of others",
       stacked({0, 1, 2, 3}, {3, 0, 1, 2}),
       1,
       {"the scales stand at other parts: those of part 0 at part 1, of part 1 at part 2"}},
      {"an expert that is missing",
       [&](Files& f) {
         for (const std::size_t i : {0, 1, 3}) AddModelOpt(&f.file, experts[i], x[i]);
         return std::vector<std::string>{"check", "w.safetensors"};
       },
       1,
       {"missing-part (1): ", "model.layers.0.mlp.experts: has no expert 2 of 0..3"}},
      {"the input scales of q, k and v are not one",
       [&](Files& f) {
         for (const char* name : {"a.q_proj", "a.k_proj", "a.v_proj"}) {
           AddModelOpt(&f.file, name, x[0]);
         }
         f.file.tensors["a.v_proj.input_scale"] = NumbersTensor({}, {0.02f});
         return std::vector<std::string>{"check", "w.safetensors"};
       },
       1,
       {"input-scale-differs (1): ", "a.v_proj: its input scale is 0.02; a.k_proj has 0.01"}},
  });
}

TEST_CASE("Block scales that do not fit right codes", "[e2e][files]") {
  const Matrix<float> x = Weights(51, kRows, kCols);
  const auto with = [&](std::function<void(StoredMatrix*)> change) {
    return [&x, change](Files& f) {
      Stored(f, x, x);
      StoredMatrix m = Quantize("nvfp4.modelopt", x, {.tensor_scale = kMultiplier});
      change(&m);
      f.file.tensors["l.weight"] = TensorOf("U8", {kRows, kCols / 2}, m.codes);
      f.file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {kRows, kCols / 16}, m.scales);
      f.file.tensors["l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
      return kOriginal;
    };
  };
  const std::size_t width = kCols / 16;
  const auto moved = [&](std::function<std::size_t(std::size_t)> from) {
    return with([from](StoredMatrix* m) {
      const Bytes scales = m->scales;
      for (std::size_t i = 0; i < scales.size(); ++i) m->scales[i] = scales[from(i)];
    });
  };
  const std::size_t count = kRows * width;
  CheckFaults({
      {"a row too low",
       moved([=](std::size_t i) { return (i + count - width) % count; }),
       1,
       {"the scales stand 1 row of scales too far down"}},
      {"a place too early",
       moved([=](std::size_t i) { return (i + 1) % count; }),
       1,
       {"the scales stand 1 place too early"}},
      {"transposed",
       moved([=](std::size_t i) { return i % kRows * width + i / kRows; }),
       1,
       {"the scales are transposed"}},
      {"interleaved, as the codes are not",
       moved([=](std::size_t i) {
         const std::size_t row = i / width;
         return (row % 2 * (kRows / 2) + row / 2) * width + i % width;
       }),
       1,
       {"the rows of scales are interleaved, and those of codes are not"}},
      {"AITER's order",
       [&](Files& f) {
         const Matrix<float> tall = Weights(52, 256, 256);
         Stored(f, tall, tall);
         const StoredMatrix m = Quantize("nvfp4.modelopt", tall, {.tensor_scale = kMultiplier});
         Bytes shuffled(m.scales.size());
         for (std::size_t r = 0; r < 256; ++r) {
           for (std::size_t c = 0; c < 16; ++c) {
             const std::size_t tile = (r / 32 * 2 + c / 8) * 256;
             shuffled[tile + c % 4 * 64 + r % 16 * 4 + c / 4 % 2 * 2 + r / 16 % 2] =
                 m.scales[r * 16 + c];
           }
         }
         f.file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {256, 16}, shuffled);
         return kOriginal;
       },
       1,
       {"the scales are in the order aiter"}},
      {"bytes of E5M2",
       with([](StoredMatrix* m) {
         for (std::uint8_t& s : m->scales) {
           s = static_cast<std::uint8_t>(Encode(FormatId::kE5M2, Decode(FormatId::kE4M3, s)));
         }
       }),
       1,
       {"the scale bytes are those of E5M2, read as E4M3"}},
      {"codes that are INT4",
       with([&](StoredMatrix* m) {
         for (std::size_t i = 0; i < m->codes.size(); ++i) {
           std::uint8_t byte = 0;
           for (std::size_t k = 0; k < 2; ++k) {
             const std::size_t at = 2 * i + k, first = at / 16 * 16;
             float amax = 0;
             for (std::size_t j = first; j < first + 16; ++j) {
               amax = std::max(amax, std::fabs(x.values[j]));
             }
             const int v = static_cast<int>(std::lround(x.values[at] / amax * 7));
             byte = static_cast<std::uint8_t>(byte | (v & 15) << (4 * k));
           }
           m->codes[i] = byte;
         }
       }),
       1,
       {"the codes are INT4 (two's complement), read as E2M1"}},
      {"every sign inverted",
       with([](StoredMatrix* m) {
         for (std::uint8_t& c : m->codes) c ^= 0x88;
       }),
       1,
       {"times the original: every sign is inverted"}},
      {"clipped, under the amax of another tensor",
       [&](Files& f) {
         Stored(f, x, x);
         const StoredMatrix m =
             Quantize("nvfp4.modelopt", x, {.tensor_scale = kMultiplier}, {.amax = {0.03f}});
         f.file.tensors["l.weight"] = TensorOf("U8", {kRows, kCols / 2}, m.codes);
         f.file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {kRows, width}, m.scales);
         f.file.tensors["l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
         return kOriginal;
       },
       1,
       {"of the scales are 448, the largest: the tensor scale is that of the amax 0.03"}},
      {"no tensor scale, where one is due",
       [&](Files& f) {
         Stored(f, x, x);
         f.file.tensors.erase("l.weight_scale_2");
         return kOriginal;
       },
       1,
       {"tensor-scale-missing (1): ", "times the original: a tensor scale of", "is missing"}},
      {"rows whose codes were never written",
       with([](StoredMatrix* m) {
         std::fill(m->codes.begin() + static_cast<std::ptrdiff_t>(m->codes.size() / 2),
                   m->codes.end(), std::uint8_t{0});
       }),
       1,
       {"unwritten-rows (1): ",
        "64 of 128 rows have codes of 0 under scales that differ, rows 64..127 among them"}},
      {"rows of zeros, with the scale that a block of zeros has",
       [](Files& f) {
         Matrix<float> padded = Weights(53, kRows, kCols);
         std::fill_n(&padded(96, 0), 32 * kCols, 0.0f);
         return Stored(f, padded, padded);
       },
       0,
       {"no findings"}},
  });
}

// FP8 of x, with the scales of a grid of numbers.
std::vector<std::string> Fp8(Files& f, const Matrix<float>& x, const Bytes& codes,
                             std::vector<std::size_t> grid, const std::vector<float>& scales) {
  WriteOriginals(f, {"l"}, {x});
  f.file.tensors["l.weight"] = TensorOf("F8_E4M3", {x.rows, x.cols}, codes);
  f.file.tensors["l.weight_scale_inv"] = NumbersTensor(std::move(grid), scales);
  return kOriginal;
}

TEST_CASE("FP8 whose codes or scales are read otherwise", "[e2e][files]") {
  // Blocks of unlike magnitudes, as layers have.
  Matrix<float> x = Weights(61, 512, 512);
  for (std::size_t r = 0; r < 512; ++r) {
    for (std::size_t c = 0; c < 512; ++c) {
      x(r, c) *= static_cast<float>(1 + (r / 128 * 4 + c / 128) * 7 % 11);
    }
  }
  const Dialect& d = *FindDialect("fp8_e4m3.128x128.fp32");
  const Quantized q = QuantizeAs(d, x.View());
  const auto scaled = [&](std::function<float(std::size_t, float)> scale) {
    std::vector<float> numbers(16);
    for (std::size_t i = 0; i < 16; ++i) numbers[i] = scale(i, q.scale_values[i]);
    return numbers;
  };
  const auto from = [&](std::function<float(std::size_t, float)> scale) {
    return [&, scale](Files& f) { return Fp8(f, x, q.codes, {4, 4}, scaled(scale)); };
  };
  CheckFaults({
      {"as they are", from([](auto, float s) { return s; }), 0, {"l: equal"}},
      {"a grid that is transposed",
       from([&](std::size_t i, float) { return q.scale_values[i % 4 * 4 + i / 4]; }),
       1,
       {"l: the scales are transposed"}},
      {"weight_scale in the place of weight_scale_inv",
       from([](auto, float s) { return 1 / s; }),
       1,
       {"l: the scales are stored as reciprocals"}},
      {"FNUZ: bytes of twice the value",
       from([](auto, float s) { return 2 * s; }),
       1,
       {"times the original, as of E4M3 FNUZ (AMD)"}},
      {"E5M2 declared as E4M3",
       [&](Files& f) {
         const Quantized wide = QuantizeAs(*FindDialect("fp8_e5m2.128x128.fp32"), x.View());
         return Fp8(f, x, wide.codes, {4, 4}, wide.scale_values);
       },
       1,
       {"l: the codes are E5M2, read as E4M3"}},
      {"INT8 declared as E4M3",
       [&](Files& f) {
         Bytes codes(x.values.size());
         std::vector<float> scales(x.rows);
         for (std::size_t r = 0; r < x.rows; ++r) {
           float amax = 0;
           for (std::size_t c = 0; c < x.cols; ++c) amax = std::max(amax, std::fabs(x(r, c)));
           scales[r] = amax / 127;
           for (std::size_t c = 0; c < x.cols; ++c) {
             codes[r * x.cols + c] =
                 static_cast<std::uint8_t>(std::lround(x(r, c) / scales[r]) & 0xFF);
           }
         }
         return Fp8(f, x, codes, {x.rows, 1}, scales);
       },
       1,
       {"the codes are INT8 (two's complement), read as E4M3"}},
      {"rows scaled by the amax of their first columns",
       [&](Files& f) {
         Matrix<float> even = Weights(62, 256, 512);
         Bytes codes(even.values.size());
         std::vector<float> scales(even.rows);
         for (std::size_t r = 0; r < even.rows; ++r) {
           float amax = 0;
           for (std::size_t c = 0; c < 32; ++c) amax = std::max(amax, std::fabs(even(r, c)));
           scales[r] = amax / 448;
           for (std::size_t c = 0; c < even.cols; ++c) {
             codes[r * even.cols + c] =
                 static_cast<std::uint8_t>(Encode(FormatId::kE4M3, even(r, c) / scales[r]));
           }
         }
         return Fp8(f, even, codes, {even.rows, 1}, scales);
       },
       1,
       {"of the codes are the largest of their format: the scales are of an amax that is smaller"}},
      {"the scales of two ranks, each padded to whole blocks",
       [&](Files& f) {
         Matrix<float> w(192, 384);
         Bytes codes;
         std::vector<float> scales;
         for (std::size_t rank = 0; rank < 2; ++rank) {
           Matrix<float> part = Weights(63 + rank, 96, 384, rank == 0 ? 0.02 : 0.08);
           std::copy(part.values.begin(), part.values.end(), &w(rank * 96, 0));
           const Quantized half = QuantizeAs(d, part.View());
           codes.insert(codes.end(), half.codes.begin(), half.codes.end());
           scales.insert(scales.end(), half.scale_values.begin(), half.scale_values.end());
         }
         return Fp8(f, w, codes, {2, 3}, scales);
       },
       1,
       {"the blocks of scales begin anew every 96 rows: the scales are those of 2 ranks, joined"}},
      {"a matrix without its scale beside others",
       [&](Files& f) {
         Fp8(f, x, q.codes, {4, 4}, q.scale_values);
         f.file.tensors["m.weight"] = TensorOf("F8_E4M3", {512, 512}, q.codes);
         return std::vector<std::string>{"check", "w.safetensors"};
       },
       1,
       {"unused (1): ", "m.weight: holds codes (F8_E4M3 512x512) without scales"}},
      {"bytes that are declared as FNUZ",
       [&](Files& f) {
         Fp8(f, x, q.codes, {4, 4}, q.scale_values);
         f.file.tensors["l.weight"].dtype = "F8_E4M3FNUZ";
         return std::vector<std::string>{"check", "w.safetensors"};
       },
       1,
       {"grid (1): ", "codes are F8_E4M3FNUZ (AMD: half of the values"}},
      {"every E8M0 byte one too large",
       [&](Files& f) {
         StoredMatrix m = Quantize("mxfp4.rceil", x);
         for (std::uint8_t& s : m.scales) ++s;
         WriteOriginals(f, {"l"}, {x});
         f.file.tensors["l.weight"] = TensorOf("U8", {512, 256}, m.codes);
         f.file.tensors["l.weight_scale"] = TensorOf("U8", {512, 16}, m.scales);
         return kOriginal;
       },
       1,
       {"times the original: every scale byte is 1 too large"}},
  });
}

TEST_CASE("A grid that does not fit is named where it is a known one", "[e2e][files]") {
  const auto grid = [](std::size_t rows, std::size_t cols, std::vector<std::size_t> scales) {
    return [=](Files& f) {
      const std::size_t count = std::accumulate(scales.begin(), scales.end(), std::size_t{1},
                                                std::multiplies<std::size_t>());
      f.file.tensors["l.weight"] = TensorOf("F8_E4M3", {rows, cols}, Bytes(rows * cols, 0x38));
      f.file.tensors["l.weight_scale_inv"] =
          NumbersTensor(scales, std::vector<float>(count, 0.01f));
      return std::vector<std::string>{"check", "w.safetensors"};
    };
  };
  CheckFaults({
      {"transposed", grid(256, 512, {4, 2}), 1, {"has 2x4", "; that is the transposed grid"}},
      {"without the last, partial blocks",
       grid(320, 384, {2, 3}),
       1,
       {"the scales of the last blocks, which are not whole, are missing"}},
      {"two ranks",
       grid(384, 384, {4, 3}),
       1,
       {"that is the grid of 2 ranks of 192 rows, whose last blocks are not whole"}},
      {"three ranks along the columns",
       grid(256, 960, {2, 9}),
       1,
       {"that is the grid of 3 ranks of 320 columns"}},
      {"blocks of 64", grid(256, 384, {4, 6}), 1, {"that is the grid of 64x64 blocks"}},
      {"a grid of nothing known", grid(256, 384, {5, 7}), 1, {"has 2x3"}, {"; that is"}},
  });
}

}  // namespace
}  // namespace fp4lab
