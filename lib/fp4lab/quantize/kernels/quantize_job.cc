#include "fp4lab/quantize/kernels/quantize_job.h"

#include <algorithm>
#include <array>

#include "fp4lab/dialect/stages.h"

namespace fp4lab {
namespace {

// Decode of the codes below 256 of every format. Small matrices would spend a quarter of their time
// on it.
using DecodedCodes = std::array<std::array<float, 256>, kFormats.size()>;
constexpr DecodedCodes DecodeAll() {
  DecodedCodes decoded = {};
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    for (std::uint32_t code = 0; code < 256; ++code) {
      decoded[i][code] = Decode(kFormats[i].format, code);
    }
  }
  return decoded;
}
constexpr DecodedCodes kDecoded = DecodeAll();

// Whether rows may be processed as one long row: they are contiguous in memory, hold whole blocks
// and share all other numbers.
bool JoinsRows(const Dialect& d, const BlockGrid& grid, MatrixView<const float> x,
               const QuantizeOutputs& out) {
  const auto lies_so = [](const auto& view) { return view.data == nullptr || view.IsRowMajor(); };
  return grid.block_rows == 1 && x.cols % grid.block_cols == 0 && x.IsRowMajor() &&
         lies_so(out.values) && lies_so(out.integers) && lies_so(out.scales) && !d.row_scaled &&
         d.unbias == Unbias::kNone;
}

}  // namespace

DialectJob JobOf(const Dialect& d, MatrixView<const float> x, const DialectOptions& options,
                 const std::vector<float>& amax, const QuantizeOutputs& out) {
  DialectJob job{
      .dialect = d,
      .x = x,
      .options = options,
      .amax = amax,
      .out = out,
      .grid = BlockGrid(d, x.rows, x.cols),
      .element = ElementConstantsOf(d.element),
      .next = NextAfterLargest(d.element),
      .scale = {.constants = ElementConstantsOf(d.scale), .exponent = ScaleConstantsOf(d, 0.0f)}};
  const std::uint32_t codes = 1u << FormatOf(d.element).bits;
  const std::array<float, 256>& elements = kDecoded[static_cast<std::size_t>(d.element)];
  const std::array<float, 256>& scales = kDecoded[static_cast<std::size_t>(d.scale)];
  for (std::uint32_t code = 0; code < 256; ++code) {
    job.values[code] = elements[code % codes];
    const auto byte = static_cast<std::uint8_t>(code);
    job.scale.values[code] = ScaleValueFrom(d, byte, scales[code]);
    job.scale.stored[code] = ReplacedNan(d, byte);
  }
  job.is_four_bits = codes == job.integers.size();
  if (job.is_four_bits) {
    std::transform(job.values.begin(), job.values.begin() + codes, job.integers.begin(),
                   [](float v) { return static_cast<std::uint8_t>(12 + static_cast<int>(2 * v)); });
  }
  constexpr std::size_t kColumns = 1024;
  if (!job.grid.stores_scales) job.grid.block_cols = kColumns;  // no blocks: any cut is valid
  job.chunk = std::max<std::size_t>(kColumns / job.grid.block_cols, 1) * job.grid.block_cols;
  const std::size_t band = job.grid.block_rows * std::max<std::size_t>(x.cols, 1);
  const std::size_t least = HasUnitRows(x) ? 1 : (15 + job.grid.block_rows) / job.grid.block_rows;
  job.group = std::max(least, std::max<std::size_t>(ElementsOfGroup(x.size()), 1 << 15) / band);
  job.joins_rows = JoinsRows(d, job.grid, x, out);
  return job;
}

}  // namespace fp4lab
