#include "fp4lab/cuda/quantize/implementation.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/cuda/quantize/launch.h"
#include "fp4lab/cuda/quantize/sides.h"

namespace fp4lab::cuda {
namespace {

using Row = Implementation<DeviceQuantization>;

std::string_view WhyNotTilesRow(const DeviceQuantization& call) {
  const auto why = WhyNotFast(call.dialect);
  return why.empty() ? WhyNotTiles(call) : why;
}

bool MakeByTiles(const DeviceQuantization& call) {
  PrepareSides(call);
  LaunchTiles(call.x, call.dialect, call.row, call.column, call.stream);
  return true;
}

// The fast kernels of rows: rows of whole blocks of one row (or one scale for the tensor), data
// aligned to 16 bytes. The columnwise side, if there is one, is the dialects' kernel's.
std::string_view WhyNotRows(const DeviceQuantization& call) {
  if (const auto why = WhyNotFast(call.dialect); !why.empty()) return why;
  if (call.row == nullptr) return "no rowwise side";
  const Dialect& d = call.dialect;
  const QuantizedSide& side = *call.row;
  const bool one_scale = d.block_scale == BlockScale::kOneBlock;
  const int wanted = d.block_scale == BlockScale::kFolded ? 16 : 32;
  if (!one_scale && (d.block_rows != 1 || d.block_cols != wanted)) {
    return "blocks other than 1x16 (NVFP4) and 1x32";
  }
  const bool narrow = d.element == FormatId::kE2M1;
  if (side.random_bits != RandomBits::kNone &&
      (!narrow || side.random_bits == RandomBits::kGiven)) {
    return "random bits that are given, or of wide elements";
  }
  if (side.hadamard != 0) return "a transform of the rowwise side";
  const std::size_t block = one_scale ? 8 : static_cast<std::size_t>(d.block_cols);
  const std::size_t size = call.x.rows * call.x.cols;
  if (size == 0 || call.x.cols % block != 0) return "rows of whole blocks";
  if (size / 8 >= std::size_t{1} << 31) return "more than 2^34 elements";
  const bool aligned = IsAligned(call.x.data) && IsAligned(side.codes) && IsAligned(side.values);
  return aligned ? std::string_view() : "data aligned to 16 bytes";
}

bool MakeByRows(const DeviceQuantization& call) {
  PrepareSides(call);
  LaunchRows(call.x, call.dialect, *call.row, call.stream);
  if (call.column != nullptr) QuantizeSide(call, *call.column);
  return true;
}

bool MakeByDialects(const DeviceQuantization& call) {
  for (const QuantizedSide* side : {call.row, call.column}) {
    if (side != nullptr) QuantizeSide(call, *side);
  }
  return true;
}

constexpr std::array kRows = {
    Row{"tiles", WhyNotTilesRow, MakeByTiles},
    Row{"rows", WhyNotRows, MakeByRows},
    Row{"dialects", [](const DeviceQuantization&) { return std::string_view(); }, MakeByDialects},
};

}  // namespace

std::span<const Row> QuantizeImplementations() { return kRows; }

}  // namespace fp4lab::cuda
