#include "fp4lab/judge/verify/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/order/row_parts.h"
#include "fp4lab/exchange/quantize_stored.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/explain/amax_parts.h"
#include "fp4lab/judge/kernels/kernel_plan.h"
#include "fp4lab/judge/kernels/match.h"
#include "fp4lab/quantize/blocks.h"

namespace fp4lab {
namespace {

// Access to the codes and scales of a stored matrix by place. If the layout is not transposed,
// codes are unpacked on demand, the rows of a band of blocks at a time.
class Opened {
 public:
  Opened(const StoredMatrix& m, std::string_view where) : m_(m), sizes_(SizesOf(m, where)) {
    const bool turned = m.layout.transposed;
    band_rows_ = Positive(m.block_rows);
    if (turned) {
      band_ = 0;
      codes_ = UnpackCodes(m.codes, m.cols, m.rows, m.layout.codes, SplitGroup(m));
      codes_ = TransposedBytes(codes_, m.cols, m.rows);
    }
    std::size_t block_rows = Positive(m.block_rows), block_cols = Positive(m.block_cols);
    if (turned) std::swap(block_rows, block_cols);
    row_step_ = m.layout.expanded_scales ? 1 : block_rows;
    col_step_ = block_cols;
  }

  std::uint8_t Code(std::size_t r, std::size_t c) const {
    if (!m_.layout.transposed && r / band_rows_ != band_) UnpackBand(r / band_rows_);
    return codes_[(r - band_ * band_rows_) * m_.cols + c];
  }
  // The bytes of row r of the codes, as they are stored.
  std::span<const std::uint8_t> StoredRow(std::size_t r) const {
    return std::span(m_.codes).subspan(r * sizes_.code_row_bytes, sizes_.code_row_bytes);
  }
  // The stored scale (r, c), and the scale of element (r, c), as in exchange/stored.h.
  std::uint32_t StoredScale(std::size_t r, std::size_t c) const {
    return ScaleCodeAt(m_.scales, ScaleOffset(m_.layout.scales, r, c, sizes_.scale_cols),
                       m_.layout.scale_type);
  }
  std::uint32_t ScaleOf(std::size_t r, std::size_t c) const {
    if (sizes_.scales == 0) return 0;
    if (m_.layout.transposed) std::swap(r, c);
    return StoredScale(r / row_step_, c / col_step_);
  }
  // The decoded value of element (r, c), without a tensor scale.
  float Value(std::size_t r, std::size_t c) const {
    const float code = Decode(m_.element, Code(r, c));
    if (sizes_.scales == 0) return code;
    return code * ScaleValueOf(m_.layout.scale_type, m_.scale, ScaleOf(r, c));
  }
  const StoredSizes& sizes() const { return sizes_; }
  const StoredMatrix& matrix() const { return m_; }
  // Elements that stored scale (r, c) covers: [first, last) in the matrix's own orientation.
  struct Region {
    std::size_t top, left, bottom, right;
  };
  Region RegionOf(std::size_t r, std::size_t c) const {
    Region stored{r * row_step_, c * col_step_, (r + 1) * row_step_, (c + 1) * col_step_};
    if (m_.layout.transposed) {
      stored = {stored.left, stored.top, stored.right, stored.bottom};
    }
    stored.bottom = std::min(stored.bottom, m_.rows);
    stored.right = std::min(stored.right, m_.cols);
    return stored;
  }

 private:
  static std::size_t Positive(int n) { return n > 0 ? static_cast<std::size_t>(n) : 1; }
  void UnpackBand(std::size_t band) const {
    const std::size_t first = band * band_rows_, rows = std::min(band_rows_, m_.rows - first);
    const auto bytes =
        std::span(m_.codes).subspan(first * sizes_.code_row_bytes, rows * sizes_.code_row_bytes);
    codes_ = UnpackCodes(bytes, rows, m_.cols, m_.layout.codes, SplitGroup(m_));
    band_ = band;
  }

  const StoredMatrix& m_;
  StoredSizes sizes_;
  std::size_t band_rows_ = 1;
  mutable std::vector<std::uint8_t> codes_;  // from row band_ * band_rows_ on
  mutable std::size_t band_ = static_cast<std::size_t>(-1);
  std::size_t row_step_ = 1, col_step_ = 1;
};

bool SameBytes(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
bool SameNumber(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void Count(PartVerdict* part, const Difference& difference, std::size_t keep) {
  ++part->different;
  if (difference.same_value) ++part->same_value;
  if (part->first.size() < keep) part->first.push_back(difference);
}

PartVerdict CompareCodes(const Opened& expected, const Opened& got, const StoredMatrix& m,
                         std::size_t keep) {
  PartVerdict part{.total = m.rows * m.cols};
  if (m.codes == got.matrix().codes) return part;
  for (std::size_t r = 0; r < m.rows; ++r) {
    if (!m.layout.transposed && SameBytes(expected.StoredRow(r), got.StoredRow(r))) continue;
    for (std::size_t c = 0; c < m.cols; ++c) {
      const std::uint32_t e = expected.Code(r, c), g = got.Code(r, c);
      if (e == g) continue;
      Count(&part, {r, c, e, g, SameNumber(expected.Value(r, c), got.Value(r, c))}, keep);
    }
  }
  return part;
}

// Whether all elements under a stored scale have the same values.
bool SameValues(const Opened& expected, const Opened& got, std::size_t r, std::size_t c) {
  const Opened::Region region = expected.RegionOf(r, c);
  for (std::size_t i = region.top; i < region.bottom; ++i) {
    for (std::size_t j = region.left; j < region.right; ++j) {
      if (!SameNumber(expected.Value(i, j), got.Value(i, j))) return false;
    }
  }
  return true;
}

PartVerdict CompareScales(const Opened& expected, const Opened& got, std::size_t keep) {
  const StoredSizes& sizes = expected.sizes();
  PartVerdict part{.total = sizes.scales == 0 ? 0 : sizes.scale_rows * sizes.scale_cols};
  if (expected.matrix().scales == got.matrix().scales) return part;
  for (std::size_t r = 0; r < sizes.scale_rows; ++r) {
    for (std::size_t c = 0; c < sizes.scale_cols; ++c) {
      const std::uint32_t e = expected.StoredScale(r, c), g = got.StoredScale(r, c);
      if (e == g) continue;
      Count(&part, {r, c, e, g, SameValues(expected, got, r, c)}, keep);
      const Format& f = FormatOf(expected.matrix().scale);
      if (e == MaxFiniteCode(f) && IsNan(f, g)) ++part.nan_for_largest;
    }
  }
  return part;
}

PartVerdict CompareTensorScale(const StoredMatrix& expected, const StoredMatrix& got,
                               std::size_t keep) {
  PartVerdict part{.total = expected.tensor_scale.size()};
  for (std::size_t i = 0; i < part.total; ++i) {
    const auto e = std::bit_cast<std::uint32_t>(expected.tensor_scale[i]);
    const auto g = std::bit_cast<std::uint32_t>(got.tensor_scale[i]);
    if (e == g) continue;
    Count(&part, {i, 0, e, g, SameNumber(expected.tensor_scale[i], got.tensor_scale[i])}, keep);
  }
  return part;
}

// The number of scale bytes of the padding that are not 0.
std::size_t ScalePaddingSet(const StoredMatrix& m, const StoredSizes& sizes) {
  const NamedScaleOrder& order = Named(m.layout.scales);
  const std::size_t rows = sizes.scale_rows, cols = sizes.scale_cols;
  std::size_t set = 0;
  for (std::size_t r = 0; r < RoundUp(rows, order.tile_rows); ++r) {
    for (std::size_t c = r < rows ? cols : 0; c < RoundUp(cols, order.tile_cols); ++c) {
      const std::size_t at = ScaleOffset(m.layout.scales, r, c, cols);
      for (std::size_t k = 0; k < sizes.scale_bytes; ++k) {
        set += m.scales[at * sizes.scale_bytes + k] != 0 ? 1 : 0;
      }
    }
  }
  return set;
}

std::size_t PaddingSet(const StoredMatrix& m, const StoredSizes& sizes) {
  std::size_t set = sizes.scales == 0 ? 0 : ScalePaddingSet(m, sizes);
  // The unused nibble of a row's last byte.
  const std::size_t cols = m.layout.transposed ? m.rows : m.cols;
  const bool packs_pairs =
      m.layout.codes == CodeOrder::kLowFirst || m.layout.codes == CodeOrder::kHighFirst;
  if (!packs_pairs || cols % 2 == 0) return set;
  const unsigned mask = m.layout.codes == CodeOrder::kLowFirst ? 0xF0u : 0x0Fu;
  for (std::size_t r = 0; r < sizes.code_rows; ++r) {
    set += (m.codes[(r + 1) * sizes.code_row_bytes - 1] & mask) != 0 ? 1 : 0;
  }
  return set;
}

// Refuses tensor scales of several parts where one is expected.
void RefuseParts(const StoredMatrix& answer, std::size_t expected, std::string_view where) {
  if (expected != 1 || answer.tensor_scale.size() < 2) return;
  const std::size_t parts = PartsWithOneNumber(answer.tensor_scale);
  if (parts < 2 || parts == answer.rows) return;
  throw Error(where, "holds " + std::to_string(parts) + " tensor scales, one for each " +
                         std::to_string(answer.rows / parts) + " rows: --parts " +
                         std::to_string(parts) + " judges each part by its own");
}

void RequireSize(std::size_t got, std::size_t expected, const char* what, const StoredMatrix& m,
                 std::string_view where) {
  if (got == expected) return;
  throw Error(
      where,
      std::to_string(got) + " " + what + "; a " + std::to_string(m.rows) + "x" +
          std::to_string(m.cols) + " matrix with codes " + std::string(Name(m.layout.codes)) +
          " and scales " + std::string(Named(m.layout.scales).name) +
          (m.layout.transposed ? ", transposed," : "") +
          (m.layout.expanded_scales ? ", expanded," : "") + " has " + std::to_string(expected) +
          ": state the layout that the kernel writes, or find it with fp4lab "
          "identify" +
          (got > 1 && expected == 1 ? "; --parts takes a number for each part" : ""));
}

}  // namespace

bool Verdict::Equal() const { return Accepted() && codes.different == 0 && scales.different == 0; }

bool Verdict::Accepted() const {
  if (checks_padding && padding_set != 0) return false;
  if (tensor_scale.different != 0) return false;
  if (allowed) return allowed->ok;
  return codes.different == 0 && scales.different == 0;
}

bool Verdict::OnlyTensorScale() const {
  Verdict with_right_number = *this;
  with_right_number.tensor_scale.different = 0;
  return tensor_scale.different != 0 && with_right_number.Accepted();
}

bool Verdict::OnlyOtherBytes() const {
  return !Accepted() && !allowed && codes.different == codes.same_value &&
         scales.different == scales.same_value &&
         tensor_scale.different == tensor_scale.same_value && !(checks_padding && padding_set != 0);
}

Verdict CompareStored(const StoredMatrix& expected, const StoredMatrix& answer,
                      std::string_view where, const VerifyOptions& options) {
  const IeeeArithmetic ieee;
  Expects(expected.layout == answer.layout && expected.rows == answer.rows &&
              expected.cols == answer.cols,
          "two matrices of one shape and layout");
  RequireSize(answer.codes.size(), expected.codes.size(), "bytes of codes", expected, where);
  RequireSize(answer.scales.size(), expected.scales.size(), "bytes of scales", expected, where);
  RefuseParts(answer, expected.tensor_scale.size(), where);
  RequireSize(answer.tensor_scale.size(), expected.tensor_scale.size(), "tensor scales", expected,
              where);
  const Opened ours(expected, where), theirs(answer, where);
  return {.codes = CompareCodes(ours, theirs, expected, options.first),
          .scales = CompareScales(ours, theirs, options.first),
          .tensor_scale = CompareTensorScale(expected, answer, options.first),
          .scale_type = expected.layout.scale_type,
          .has_tensor_scale = !expected.tensor_scale.empty(),
          .padding_set = PaddingSet(answer, ours.sizes()),
          .checks_padding = options.check_padding,
          .allowed = {}};
}

namespace {

// Interprets the tensor scale, if it differs. used: the amax that codes and scales follow from.
void ReadTensorScale(const Dialect& dialect, const StoredMatrix& expected,
                     std::span<const float> amax, const StoredMatrix& answer, AmaxUsed used,
                     std::span<const OtherAmax> others, Verdict* verdict) {
  if (verdict->tensor_scale.different == 0) return;
  verdict->tensor_scale_reading =
      InterpretTensorScale({.convention = answer.layout.tensor_scale,
                            .constant = TensorScaleConstant(expected, dialect.scale_max),
                            .largest_element = MaxFinite(dialect.element),
                            .amax = amax,
                            .got = answer.tensor_scale,
                            .used = used},
                           others);
}

// Where scales and codes follow from an amax for each of a few parts, the reading of the number
// says so: it is then the amax of a part, whatever else it may look like.
void NameParts(const Kernel& kernel, ByteMatcher& matcher, Verdict* verdict) {
  const Deviation* const parts[] = {FindDeviation("amax-of-parts")};
  for (const DeviationValue& value : PartsToTry(kernel, matcher)) {
    const KernelPlan plan = PlanOf(kernel, parts, nullptr, &value);
    if (!matcher.Matches(plan)) continue;
    verdict->tensor_scale_reading->kind = "parts";
    verdict->tensor_scale_reading->looks =
        "of a matrix whose parts have an amax of their own: " + Text(parts[0]->kind, value);
    verdict->tensor_scale_reading->remedy =
        "store a number for each part and judge them with --parts, or compute all parts with the "
        "amax of the whole matrix";
    return;
  }
}

}  // namespace

Verdict CompareQuantized(const Dialect& dialect, const Quantized& right, const StoredMatrix& answer,
                         std::string_view where, const VerifyOptions& options) {
  const IeeeArithmetic ieee;
  const StoredMatrix expected = Store(dialect, right, answer.layout);
  Verdict verdict = CompareStored(expected, answer, where, options);
  const bool bytes_equal = verdict.codes.different == 0 && verdict.scales.different == 0;
  ReadTensorScale(dialect, expected, right.amax, answer,
                  bytes_equal ? AmaxUsed::kRight : AmaxUsed::kNotTried, options.other_amaxes,
                  &verdict);
  return verdict;
}

Verdict Verify(const Dialect& dialect, MatrixView<const float> x, const StoredMatrix& answer,
               std::string_view where, const VerifyOptions& options) {
  const IeeeArithmetic ieee;
  const StoredMatrix expected = QuantizeStored(dialect, x, options.quantize, answer.layout);
  Verdict verdict = CompareStored(expected, answer, where, options);
  std::vector<float> amax;
  if (verdict.tensor_scale.different != 0 || IsApproximate(dialect)) {
    amax = TensorAmaxes(dialect, x, options.quantize);
  }
  if (verdict.tensor_scale.different != 0) {
    std::vector<OtherAmax> others = options.other_amaxes;
    for (OtherAmax& part : PartialAmaxes(x, dialect.block_cols)) others.push_back(std::move(part));
    ByteMatcher matcher(x, answer, options.quantize);
    const AmaxUsed used = FindAmaxUsed({.dialect = dialect, .layout = answer.layout}, matcher);
    ReadTensorScale(dialect, expected, amax, answer, used, others, &verdict);
    if (used == AmaxUsed::kNeither) {
      NameParts({.dialect = dialect, .layout = answer.layout}, matcher, &verdict);
    }
  }
  if (IsApproximate(dialect)) {
    Quantized loaded = Load(dialect, answer, where);
    if (loaded.amax.empty()) loaded.amax = amax;  // the answer stores none
    verdict.allowed = IsAllowed(dialect, x, loaded, options.quantize);
  }
  return verdict;
}

}  // namespace fp4lab
