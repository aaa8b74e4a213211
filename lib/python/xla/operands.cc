#include "operands.h"

#include <algorithm>
#include <array>
#include <bit>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/formats/encode.h"

namespace fp4lab::handlers {

FormatId Fp8Of(const Buffer& codes) {
  const ffi::DataType type = codes.element_type();
  Demand(type == ffi::DataType::F8E4M3FN || type == ffi::DataType::F8E5M2,
         "FP8 codes are float8_e4m3fn or float8_e5m2, not " + std::string(DtypeName(type)));
  return type == ffi::DataType::F8E4M3FN ? FormatId::kE4M3 : FormatId::kE5M2;
}

std::vector<float> ValuesOf(const Buffer& data, std::size_t first, std::size_t count) {
  Demand(first + count <= data.element_count(),
         "an operand of " + ShapeText(data) + " is too small for its groups");
  std::vector<float> values(count);
  const ffi::DataType type = data.element_type();
  if (type == ffi::DataType::F32) {
    std::copy_n(FloatsOf(data) + first, count, values.begin());
  } else if (type == ffi::DataType::BF16) {
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = std::bit_cast<float>(std::uint32_t{WordsOf(data)[first + i]} << 16);
    }
  } else if (type == ffi::DataType::F16) {
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = Decode(FormatId::kFP16, WordsOf(data)[first + i]);
    }
  } else {
    Demand(type == ffi::DataType::F8E4M3FN || type == ffi::DataType::F8E5M2,
           "operands of type " + std::string(DtypeName(type)) + " are not served");
    std::array<float, 256> table;
    for (std::uint32_t i = 0; i < 256; ++i) table[i] = Decode(Fp8Of(data), i);
    for (std::size_t i = 0; i < count; ++i) values[i] = table[BytesOf(data)[first + i]];
  }
  return values;
}

std::size_t Mxfp8ScaleBytes(std::size_t rows, std::size_t depth) {
  return ScaleBytes(ScaleOrder::k128x4, rows, depth / 32);
}

void ScaleMxfp8(MatrixView<float> values, const std::uint8_t* scales) {
  const std::size_t blocks = values.cols / 32;
  for (std::size_t r = 0; r < values.rows; ++r) {
    for (std::size_t b = 0; b < blocks; ++b) {
      const float s = Decode(FormatId::kE8M0, scales[Offset128x4(r, b, RoundUp(blocks, 4))]);
      for (std::size_t k = 32 * b; k < 32 * (b + 1); ++k) values(r, k) *= s;
    }
  }
}

void MultiplyInto(MatrixView<const float> a, MatrixView<const float> b, int block, float alpha,
                  const GemmBias& bias, const Buffer& out, std::size_t first) {
  const std::size_t count = a.rows * b.rows;
  Demand(a.cols == b.cols, "operands of different depth");
  Demand(first + count <= out.element_count(), "the result " + ShapeText(out) + " is too small");
  GemmResult result{.rows = a.rows, .cols = b.rows};
  if (out.element_type() == ffi::DataType::F16) {
    std::vector<float> product(count);
    result.fp32 = product.data();
    PlainGemm(a, b, block, alpha, bias, result);
    for (std::size_t i = 0; i < count; ++i) {
      WordsOf(out)[first + i] = static_cast<std::uint16_t>(Encode(FormatId::kFP16, product[i]));
    }
    return;
  }
  if (out.element_type() == ffi::DataType::F32) {
    result.fp32 = FloatsOf(out) + first;
  } else {
    Demand(out.element_type() == ffi::DataType::BF16,
           "the result is bfloat16, float16 or float32, not " +
               std::string(DtypeName(out.element_type())));
    result.bf16 = WordsOf(out) + first;
  }
  PlainGemm(a, b, block, alpha, bias, result);
}

}  // namespace fp4lab::handlers
