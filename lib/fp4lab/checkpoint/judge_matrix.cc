#include "fp4lab/checkpoint/judge_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"

namespace fp4lab {
namespace {

std::string Share(std::size_t part, std::size_t all, std::string_view noun) {
  return (part == all ? "all " : std::to_string(part) + " of ") + std::to_string(all) + " " +
         std::string(noun);
}

bool IsPowerOfTwo(float x) {
  int exponent = 0;
  return x > 0 && std::isfinite(x) && std::frexp(x, &exponent) == 0.5f;
}

// Scales that are equal by chance or by nature are few, or powers of two of large blocks.
bool MustDiffer(const ScaleScan& s, const Reading& r) {
  const bool small_blocks = r.block_rows == 1 && r.block_cols <= 32;
  const bool powers = (!r.numbers && r.scale == FormatId::kE8M0) || IsPowerOfTwo(s.largest);
  if (powers && !(r.numbers && s.largest == 1.0f)) return small_blocks && s.count >= 32;
  return s.count >= (small_blocks ? 16u : 4u);
}

// The bytes that trunc(2^(e - 127)) mod 256 gives: 0 and powers of two.
bool LooksLikeNumbers(const ScaleScan& s) {
  std::size_t fitting = s.bytes[0], powers = 0;
  for (std::size_t b = 1; b < 256; b *= 2) {
    fitting += s.bytes[b];
    powers += s.bytes[b] > 0 ? 1 : 0;
  }
  return fitting == s.count && (powers >= 2 || (powers == 1 && s.bytes[0] > 0));
}

// The names of matrices that engines join into one.
constexpr std::array<std::array<std::string_view, 3>, 12> kJoined = {{
    {"gate_proj", "up_proj", ""},
    {"w1", "w3", ""},
    {"gate", "up", ""},
    {"ffn_gate", "ffn_up", ""},
    {"ffn_gate_exps", "ffn_up_exps", ""},
    {"linear_1", "linear_v", ""},
    {"q_proj", "k_proj", "v_proj"},
    {"wq", "wk", "wv"},
    {"attn_q", "attn_k", "attn_v"},
    {"to_q", "to_k", "to_v"},
    {"query", "key", "value"},
    {"q", "k", "v"},
}};

// The name with the part of a joined matrix replaced by the whole; empty: it is no such part.
std::string JoinedName(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  const std::string leaf = dot == std::string::npos ? name : name.substr(dot + 1);
  for (const auto& names : kJoined) {
    for (const std::string_view part : names) {
      if (part.empty() || leaf != part) continue;
      std::string joined = name.substr(0, name.size() - leaf.size()) + std::string(names[0]);
      for (std::size_t i = 1; i < names.size() && !names[i].empty(); ++i) {
        joined += "+" + std::string(names[i]);
      }
      return joined;
    }
  }
  return "";
}

bool HoldsTwo(const std::string& name) {  // gate and up in one tensor
  const std::size_t dot = name.rfind('.');
  const std::string leaf = dot == std::string::npos ? name : name.substr(dot + 1);
  return leaf == "w13" || leaf.starts_with("gate_up") || leaf == "w13_weight" || leaf == "w1_w3";
}

std::string NumbersText(const std::vector<float>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size() && i < 4; ++i) {
    text += (i == 0 ? "" : ", ") + ShortestText(numbers[i]);
  }
  return text + (numbers.size() > 4 ? ", ..." : "");
}

// Input scales that are stored, and none of them 0, negative or NaN.
bool AreNumbers(const std::vector<float>& scales) {
  return !scales.empty() &&
         std::all_of(scales.begin(), scales.end(), [](float s) { return s > 0; });
}

void JudgeJoined(std::vector<CheckedMatrix>* matrices, std::vector<Finding>* findings) {
  std::map<std::string, std::vector<CheckedMatrix*>> joined;
  for (CheckedMatrix& m : *matrices) {
    if (m.tensor_scale.empty() || m.reading.block_rows == 0) continue;
    if (HoldsTwo(m.name) && m.tensor_scale.size() == 2 && m.tensor_scale[0] != m.tensor_scale[1] &&
        m.reading.parts == 2) {
      Report(FindingKind::kTensorScaleDiffers, "its two halves have " + NumbersText(m.tensor_scale),
             &m, findings);
    }
    const std::string name = JoinedName(m.name);
    if (!name.empty()) joined[name].push_back(&m);
  }
  for (const auto& [name, parts] : joined) {
    const CheckedMatrix& first = *parts.front();
    for (CheckedMatrix* part : parts) {
      if (part->tensor_scale != first.tensor_scale) {
        Report(FindingKind::kTensorScaleDiffers,
               NumbersText(part->tensor_scale) + "; " + first.name + " has " +
                   NumbersText(first.tensor_scale),
               part, findings);
      }
      if (AreNumbers(part->input_scale) && AreNumbers(first.input_scale) &&
          part->input_scale != first.input_scale) {
        Report(FindingKind::kInputScaleDiffers,
               "its input scale is " + NumbersText(part->input_scale) + "; " + first.name +
                   " has " + NumbersText(first.input_scale),
               part, findings);
      }
    }
  }
}

void JudgeOriginal(const References& references, const StoredBytes& bytes, bool only,
                   CheckedMatrix* m, std::vector<Finding>* findings) {
  const OriginalSource& source = *references.original;
  OriginalVerdict verdict;
  const std::string tensor = source.Find(m->name, only);
  RowReader rows;
  if (tensor.empty()) {
    verdict.problem = "the original has no tensor of this name";
  } else {
    rows = source.Rows(tensor, m->reading, &verdict.problem);
  }
  if (rows) {
    verdict = CompareWithOriginal(
        bytes, m->reading, m->convention, m->tensor_scale, rows,
        [&] { return source.Others(tensor, m->reading); }, references.other_scales);
    if (source.IsTransposed(tensor, m->reading)) {
      verdict.note += verdict.note.empty() ? "" : "; ";
      verdict.note += "the original's columns are its rows";
    }
  }
  verdict.tensor = tensor;
  if (!verdict.cause.empty()) Report(FindingKind::kOriginal, verdict.cause, m, findings);
  if (!verdict.problem.empty()) Report(FindingKind::kOriginal, verdict.problem, m, findings);
  m->original = std::move(verdict);
}

void JudgeValues(const OriginalSource& source, const StoredBytes& bytes, bool only,
                 CheckedMatrix* m, std::vector<Finding>* findings) {
  ValuesVerdict verdict;
  const std::string tensor = source.Find(m->name, only);
  if (tensor.empty()) {
    verdict.problem = "there are no values of this name";
  } else if (const RowReader rows = source.Rows(tensor, m->reading, &verdict.problem)) {
    verdict = CompareValues(bytes, m->reading, m->convention, m->tensor_scale, rows);
  }
  verdict.tensor = tensor;
  if (!verdict.problem.empty()) {
    Report(FindingKind::kValues, verdict.problem, m, findings);
  } else if (verdict.different > 0) {
    Report(FindingKind::kValues,
           std::to_string(verdict.different) + " of " + std::to_string(verdict.elements) +
               " values differ, the first at (" + std::to_string(verdict.row) + ", " +
               std::to_string(verdict.col) + "): " + ShortestText(verdict.got) +
               ", the matrix decodes to " + ShortestText(verdict.want) +
               (verdict.cause.empty() ? "" : "; " + verdict.cause),
           m, findings);
  }
  m->values = std::move(verdict);
}

}  // namespace

void Report(FindingKind kind, std::string text, CheckedMatrix* m, std::vector<Finding>* findings) {
  m->findings.push_back(kind);
  findings->push_back({kind, m->name, std::move(text)});
}

void JudgeCodes(const CodeScan& scan, CheckedMatrix* m, std::vector<Finding>* findings) {
  const IeeeArithmetic ieee;
  const bool bytes = m->reading.codes == CodeOrder::kBytes;
  const std::uint8_t magnitude = bytes ? 0x7F : 0x77;
  if ((scan.any & magnitude) == 0) {
    Report(FindingKind::kZeroCodes, "every code is 0", m, findings);
  } else if (scan.any == scan.all) {
    Report(FindingKind::kConstantCodes, "every byte of the codes is " + HexText(scan.any, 2), m,
           findings);
  }
  if (scan.impossible > 0) {
    const std::string element(Named(m->reading.element).short_name);
    const bool eight = FormatOf(m->reading.element).bits == 8;
    Report(FindingKind::kImpossibleCodes,
           CountText(scan.impossible, "byte") +
               (eight ? " of NaN or Inf" : " that " + element + " lacks") + ", the first at byte " +
               std::to_string(scan.first_impossible),
           m, findings);
  }
}

void JudgeScales(const ScaleScan& scan, std::size_t dead_blocks, CheckedMatrix* m,
                 std::vector<Finding>* findings) {
  const IeeeArithmetic ieee;
  const Reading& r = m->reading;
  const bool e8m0 = !r.numbers && r.scale == FormatId::kE8M0;
  if (e8m0 && LooksLikeNumbers(scan)) {
    Report(FindingKind::kNumbersAsBytes,
           "every scale byte is 0 or a power of two: 2^(e - 127) cast to a byte, not e", m,
           findings);
    return;
  }
  if (dead_blocks > 0) {
    const std::string zero = e8m0 ? " have the scale byte 0x00 (2^-127)" : " have a scale of 0";
    Report(FindingKind::kZeroScales,
           Share(dead_blocks, scan.count, "blocks") + zero + " although their codes are not 0", m,
           findings);
  } else if (scan.constant && MustDiffer(scan, r)) {
    Report(FindingKind::kConstantScales,
           "all " + std::to_string(scan.count) + " scales are " + ShortestText(scan.largest), m,
           findings);
  }
  if (scan.nans > 0) {
    Report(FindingKind::kNanScales, Share(scan.nans, scan.count, "scales") + " are NaN or Inf", m,
           findings);
  }
  if (scan.negatives > 0) {
    Report(FindingKind::kNegativeScales,
           Share(scan.negatives, scan.count, "scales") + " have a sign", m, findings);
  }
  const bool all_constant = scan.constant && scan.count > 1;
  const bool many = scan.largest_finite >= 4 && scan.largest_finite * 100 > scan.count;
  if (!r.numbers && (e8m0 ? scan.largest_finite > 0 : many) && !all_constant) {
    Report(FindingKind::kSaturatedScales,
           Share(scan.largest_finite, scan.count, "scales") + " are " +
               ShortestText(MaxFinite(r.scale)) + ", the largest of their format",
           m, findings);
  }
  m->largest_value = scan.largest * MaxFinite(r.element);
}

void JudgeNumbers(bool needs_number, const std::string& number_name, CheckedMatrix* m,
                  std::vector<Finding>* findings) {
  const IeeeArithmetic ieee;
  float largest = 1;
  bool broken = false;
  if (m->tensor_scale.empty()) {
    if (needs_number) {
      Report(FindingKind::kTensorScaleMissing, "has no " + number_name, m, findings);
    }
  } else {
    const std::size_t n = m->tensor_scale.size();
    const std::size_t rows = m->reading.parts * m->reading.rows;
    if (n != 1 && n != m->reading.parts && n != rows && n != 2 * m->reading.parts) {
      Report(FindingKind::kTensorScaleCount,
             std::to_string(n) + " tensor scales for " + CountText(m->reading.parts, "part"), m,
             findings);
    }
    std::size_t bad = 0;
    largest = 0;
    for (const float x : m->tensor_scale) {
      bad += !(x > 0) || std::isinf(x) ? 1 : 0;
      largest = std::max(largest, m->convention == TensorScaleConvention::kDivisor ? 1 / x : x);
    }
    broken = bad > 0;
    if (broken) {
      Report(FindingKind::kTensorScaleZero,
             number_name + " is " + NumbersText(m->tensor_scale) +
                 (n > 1 ? " (" + std::to_string(bad) + " of " + std::to_string(n) +
                              " are no positive number)"
                        : ""),
             m, findings);
    }
  }
  for (const float x : m->input_scale) {
    if (x > 0 && !std::isinf(x)) continue;
    Report(FindingKind::kInputScaleZero, "the input scale is " + ShortestText(x), m, findings);
    break;
  }
  if (m->convention == TensorScaleConvention::kAmax) {
    largest /= MaxFinite(m->reading.element) * 448.0f;
  }
  m->largest_value *= largest;
  const bool scales_found = std::any_of(m->findings.begin(), m->findings.end(), [](FindingKind k) {
    return k == FindingKind::kZeroScales || k == FindingKind::kNanScales ||
           k == FindingKind::kNumbersAsBytes || k == FindingKind::kConstantScales ||
           k == FindingKind::kTensorScaleMissing;
  });
  if (broken || scales_found || m->largest_value == 0) return;
  if (m->largest_value > 1e5f || m->largest_value < 1e-7f) {
    Report(
        FindingKind::kMagnitude,
        "the largest value that scales and tensor scale allow is " + ShortestText(m->largest_value),
        m, findings);
  }
}

void JudgeReferences(const References& references, const StoredBytes& bytes, bool only,
                     CheckedMatrix* m, std::vector<Finding>* findings) {
  const IeeeArithmetic ieee;
  if (m->formula.empty() || bytes.codes.empty()) return;
  if (references.original != nullptr) {
    JudgeOriginal(references, bytes, only, m, findings);
  }
  if (references.values != nullptr) JudgeValues(*references.values, bytes, only, m, findings);
}

void JudgeNeighbours(const QuantizationConfig& config, std::vector<CheckedMatrix>* matrices,
                     std::vector<Finding>* findings) {
  const IeeeArithmetic ieee;
  JudgeJoined(matrices, findings);
  if (config.input_scales == false) return;
  // A formula under the same names whose activations have a scale somewhere.
  std::set<std::pair<std::string, std::string>> with_input;
  for (const CheckedMatrix& m : *matrices) {
    if (!m.input_scale.empty()) with_input.emplace(m.naming, m.formula);
  }
  for (CheckedMatrix& m : *matrices) {
    if (!m.input_scale.empty()) continue;
    const bool modelopt = m.naming == "modelopt" && config.input_scales == true &&
                          (m.formula == "NVFP4" || m.reading.block_rows == 0);
    if (!modelopt && !with_input.contains({m.naming, m.formula})) continue;
    Report(FindingKind::kInputScaleMissing,
           modelopt && with_input.empty() ? "none is stored; " + config.file + " states " +
                                                config.algorithm + " with static activations"
                                          : "none is stored; other matrices have one",
           &m, findings);
  }
}

}  // namespace fp4lab
