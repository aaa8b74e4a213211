#include "fp4lab/checkpoint/dumps/dumps.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/checkpoint/dumps/dump_source.h"
#include "fp4lab/checkpoint/original/error_sums.h"
#include "fp4lab/exchange/shape.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 16;      // elements that are decoded at a time
constexpr std::size_t kMostRows = std::size_t{1} << 22;  // whose order is looked at
constexpr std::size_t kBlock = 16;                       // columns
constexpr double kNoNoise = 999;

// Names in the order of people: layers.2 before layers.10.
bool NaturalLess(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto number = [&](std::string_view text, std::size_t* at) {
      while (*at + 1 < text.size() && text[*at] == '0' && digit(text[*at + 1])) ++*at;
      const std::size_t begin = *at;
      while (*at < text.size() && digit(text[*at])) ++*at;
      return text.substr(begin, *at - begin);
    };
    const std::string_view x = number(a, &i), y = number(b, &j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

std::string PlainName(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"model.", "module.", "_orig_mod."}) {
      if (name.size() <= prefix.size() || !name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      again = true;
    }
  }
  return std::string(name);
}

// The numbers of a name at the places of '*' of a pattern; nullopt: it is another name.
std::optional<std::vector<std::string>> NumbersIn(std::string_view name, std::string_view pattern) {
  std::vector<std::string> numbers;
  std::size_t at = 0;
  for (const char c : pattern) {
    if (c != '*') {
      if (at >= name.size() || name[at] != c) return std::nullopt;
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < name.size() && name[at] >= '0' && name[at] <= '9') ++at;
    if (at == begin) return std::nullopt;
    numbers.emplace_back(name.substr(begin, at - begin));
  }
  if (at != name.size()) return std::nullopt;
  return numbers;
}

// The name in the second dump that the caller states; "": none.
std::string StatedName(const std::string& name, const DumpOptions& options) {
  for (const auto& [first, second] : options.names) {
    const auto numbers = NumbersIn(name, first);
    if (!numbers) continue;
    std::string stated;
    std::size_t next = 0;
    for (const char c : second) {
      if (c == '*') {
        stated += (*numbers)[next++];
      } else {
        stated += c;
      }
    }
    return stated;
  }
  return "";
}

// Names by their plain form; a form that two names share is left out.
std::map<std::string, std::string> PlainNames(const SafetensorsFile& file) {
  std::map<std::string, std::string> names;
  std::vector<std::string> twice;
  for (const auto& [name, tensor] : file.tensors) {
    if (!names.emplace(PlainName(name), name).second) twice.push_back(PlainName(name));
  }
  for (const std::string& plain : twice) names.erase(plain);
  return names;
}

std::vector<std::size_t> WithoutOnes(const std::vector<std::size_t>& shape) {
  std::vector<std::size_t> rest;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(rest),
               [](std::size_t n) { return n != 1; });
  return rest;
}
std::size_t ElementsOf(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

bool IsEqual(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The formats that one dump may have rounded to.
struct NarrowFormat {
  FormatId id;
  std::string_view name;
};
constexpr std::array kNarrow = {
    NarrowFormat{FormatId::kBF16, "BF16"}, NarrowFormat{FormatId::kFP16, "FP16"},
    NarrowFormat{FormatId::kE4M3, "E4M3"}, NarrowFormat{FormatId::kE5M2, "E5M2"}};
bool IsRounded(FormatId format, double from, double to) {
  return std::isfinite(from) &&
         to == static_cast<double>(Decode(format, Encode(format, static_cast<float>(from))));
}

// The comparison of some rows.
struct Part {
  std::size_t different = 0, first_nans = 0, second_nans = 0, lone_nans = 0;
  double max_difference = 0, max_relative = 0;
  double aa = 0, ab = 0, bb = 0, noise = 0;
  std::optional<std::size_t> place;  // of the first difference
  double got = 0, second_got = 0;
  std::size_t rows_different = 0, first_row = 0, last_row = 0, first_col = 0, last_col = 0;
  std::size_t blocks_different = 0, nonzero_in_blocks = 0;
  std::array<std::size_t, kNarrow.size()> rounded = {}, second_rounded = {};  // of the differences

  void Add(const Part& o) {
    if (!place && o.place) {
      place = o.place;
      got = o.got;
      second_got = o.second_got;
    }
    if (o.different > 0) {
      first_row = different > 0 ? std::min(first_row, o.first_row) : o.first_row;
      last_row = std::max(last_row, o.last_row);
      first_col = different > 0 ? std::min(first_col, o.first_col) : o.first_col;
      last_col = std::max(last_col, o.last_col);
    }
    different += o.different;
    first_nans += o.first_nans;
    second_nans += o.second_nans;
    lone_nans += o.lone_nans;
    max_difference = std::max(max_difference, o.max_difference);
    max_relative = std::max(max_relative, o.max_relative);
    aa += o.aa, ab += o.ab, bb += o.bb, noise += o.noise;
    rows_different += o.rows_different;
    blocks_different += o.blocks_different;
    nonzero_in_blocks += o.nonzero_in_blocks;
    for (std::size_t i = 0; i < kNarrow.size(); ++i) {
      rounded[i] += o.rounded[i];
      second_rounded[i] += o.second_rounded[i];
    }
  }
};

// A block of 16 columns; returns the elements that differ.
std::size_t AddBlock(std::span<const double> x, std::span<const double> y, std::size_t row,
                     std::size_t col, std::size_t cols, Part* p) {
  std::size_t different = 0, nonzero = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = x[i], b = y[i];
    nonzero += a != 0 || b != 0 ? 1u : 0u;
    p->first_nans += std::isnan(a) ? 1u : 0u;
    p->second_nans += std::isnan(b) ? 1u : 0u;
    if (std::isfinite(a) && std::isfinite(b)) {
      p->aa += a * a, p->ab += a * b, p->bb += b * b;
      p->noise += (a - b) * (a - b);
    }
    if (IsEqual(a, b)) continue;
    const std::size_t at = col + i;
    if (p->different++ == 0) {
      p->place = row * cols + at;
      p->got = a;
      p->second_got = b;
      p->first_row = row;
      p->first_col = at;
    }
    ++different;
    p->last_row = row;
    p->first_col = std::min(p->first_col, at);
    p->last_col = std::max(p->last_col, at);
    p->lone_nans += std::isnan(a) != std::isnan(b) ? 1u : 0u;
    for (std::size_t f = 0; f < kNarrow.size(); ++f) {
      p->second_rounded[f] += IsRounded(kNarrow[f].id, a, b) ? 1u : 0u;
      p->rounded[f] += IsRounded(kNarrow[f].id, b, a) ? 1u : 0u;
    }
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const double d = std::fabs(a - b);
    p->max_difference = std::max(p->max_difference, d);
    p->max_relative = std::max(p->max_relative, d / std::max(std::fabs(a), std::fabs(b)));
  }
  if (different > 0) {
    ++p->blocks_different;
    p->nonzero_in_blocks += nonzero;
  }
  return different;
}

void AddRow(std::span<const double> x, std::span<const double> y, std::size_t row, Part* p) {
  std::size_t different = 0;
  for (std::size_t col = 0; col < x.size(); col += kBlock) {
    const std::size_t n = std::min(kBlock, x.size() - col);
    different += AddBlock(x.subspan(col, n), y.subspan(col, n), row, col, x.size(), p);
  }
  p->rows_different += different > 0 ? 1 : 0;
}

double Decibel(double signal, double noise) {
  if (!(noise > 0)) return kNoNoise;
  return signal > 0 ? 10 * std::log10(signal / noise) : -kNoNoise;
}

class TensorComparer {
 public:
  TensorComparer(const DumpSource& first, const DumpSource& second, const SafetensorsTensor& a,
                 const SafetensorsTensor& b, DumpedTensor* v)
      : first_(first), second_(second), a_(a), b_(b), v_(*v) {}

  void Compare() {
    v_.elements = ElementsOf(v_.shape);
    if (!IsComparable()) return;
    const std::vector<std::size_t> shape = WithoutOnes(v_.shape);
    v_.cols = shape.empty() ? 1 : shape.back();
    v_.rows = v_.cols == 0 ? 0 : v_.elements / v_.cols;
    v_.blocks = v_.rows * ((v_.cols + kBlock - 1) / kBlock);
    if (v_.elements == 0) return;
    const std::size_t rows = std::max<std::size_t>(1, kPart / v_.cols);  // of a part
    std::vector<Part> parts((v_.rows + rows - 1) / rows);
    ParallelFor(parts.size(), [&](std::size_t i) {
      const std::size_t begin = i * rows, end = std::min(begin + rows, v_.rows);
      std::vector<double> x((end - begin) * v_.cols), y(x.size());
      first_.Decode(a_, begin * v_.cols, x);
      second_.Decode(b_, begin * v_.cols, y);
      for (std::size_t row = begin; row < end; ++row) {
        const std::size_t at = (row - begin) * v_.cols;
        AddRow(std::span(x).subspan(at, v_.cols), std::span(y).subspan(at, v_.cols), row,
               &parts[i]);
      }
    });
    for (const Part& part : parts) all_.Add(part);
    TakeResults();
    if (all_.different > 0) v_.cause = Cause();
  }

 private:
  bool IsComparable() {
    for (const SafetensorsTensor* t : {&a_, &b_}) {
      if (DumpSource::IsRead(t->dtype)) continue;
      v_.problem = t->dtype + " is not compared; dump numbers of whole bytes";
      return false;
    }
    const std::vector<std::size_t> x = WithoutOnes(v_.shape), y = WithoutOnes(v_.second_shape);
    const bool joined = !x.empty() && !y.empty() && x.back() == y.back() &&
                        v_.elements == ElementsOf(v_.second_shape);
    if (x == y || joined) return true;
    v_.problem = "is " + ShapeText(v_.shape) + " and " + ShapeText(v_.second_shape);
    const bool swapped = x.size() == 2 && y.size() == 2 && x[0] == y[1] && x[1] == y[0];
    if (swapped) v_.problem += ": one is transposed";
    return false;
  }

  void TakeResults() {
    v_.different = all_.different;
    v_.first_nans = all_.first_nans;
    v_.second_nans = all_.second_nans;
    v_.lone_nans = all_.lone_nans;
    v_.max_difference = all_.max_difference;
    v_.max_relative = all_.max_relative;
    v_.sqnr_db = Decibel(all_.aa, all_.noise);
    v_.factor = all_.bb > 0 ? all_.ab / all_.bb : 1;
    const double scaled = all_.aa - v_.factor * all_.ab;
    // Rounding leaves some noise where there is none.
    v_.sqnr_scaled_db = scaled <= all_.aa * 1e-14 ? std::max(v_.sqnr_db, 140.0)
                                                  : std::max(v_.sqnr_db, Decibel(all_.aa, scaled));
    v_.rows_different = all_.rows_different;
    v_.first_row = all_.first_row, v_.last_row = all_.last_row;
    v_.first_col = all_.first_col, v_.last_col = all_.last_col;
    v_.blocks_different = all_.blocks_different;
    if (!all_.place) return;
    v_.got = all_.got;
    v_.second_got = all_.second_got;
    std::size_t at = *all_.place;
    v_.place.resize(v_.shape.size());
    for (std::size_t i = v_.shape.size(); i-- > 0;) {
      v_.place[i] = at % v_.shape[i];
      at /= v_.shape[i];
    }
  }

  std::string Cause() const {
    for (std::size_t f = 0; f < kNarrow.size(); ++f) {
      const std::string name(kNarrow[f].name);
      if (all_.second_rounded[f] == all_.different && IsOf(second_, b_, kNarrow[f].id)) {
        return "the second is the first in " + name;
      }
      if (all_.rounded[f] == all_.different && IsOf(first_, a_, kNarrow[f].id)) {
        return "the first is the second in " + name;
      }
    }
    if (all_.lone_nans == all_.different) return "NaN stands in one dump only";
    const bool scaled = v_.sqnr_scaled_db > 40 && v_.sqnr_scaled_db > v_.sqnr_db + 20;
    if (scaled) return "the first is " + TextOf("%.6g", v_.factor) + " times the second";
    const std::string rows = RowsText();
    if (!rows.empty()) return rows;
    const std::size_t in_rows = v_.rows_different * ((v_.cols + kBlock - 1) / kBlock);
    const bool whole = v_.cols % kBlock == 0 && 4 * all_.different >= 3 * all_.nonzero_in_blocks;
    if (!whole || 2 * v_.blocks_different > in_rows) return "";
    return "whole blocks of 16 columns differ, " + std::to_string(v_.blocks_different) + " of " +
           std::to_string(v_.blocks) + ", and nothing else: the scales of these blocks do";
  }

  // Whether a format holds every finite value of a tensor.
  bool IsOf(const DumpSource& source, const SafetensorsTensor& tensor, FormatId format) const {
    std::vector<std::uint8_t> fits((v_.elements + kPart - 1) / kPart);
    ParallelFor(fits.size(), [&](std::size_t i) {
      std::vector<double> x(std::min(kPart, v_.elements - i * kPart));
      source.Decode(tensor, i * kPart, x);
      fits[i] = std::all_of(x.begin(), x.end(), [&](double value) {
        return !std::isfinite(value) || IsRounded(format, value, value);
      });
    });
    return std::all_of(fits.begin(), fits.end(), [](std::uint8_t fit) { return fit != 0; });
  }

  // A number that rows of equal values share.
  std::vector<std::uint64_t> RowHashes(const DumpSource& source,
                                       const SafetensorsTensor& tensor) const {
    std::vector<std::uint64_t> hashes(v_.rows);
    const std::size_t rows = std::max<std::size_t>(1, kPart / v_.cols);
    ParallelFor((v_.rows + rows - 1) / rows, [&](std::size_t i) {
      const std::size_t begin = i * rows, end = std::min(begin + rows, v_.rows);
      std::vector<double> x((end - begin) * v_.cols);
      source.Decode(tensor, begin * v_.cols, x);
      for (std::size_t row = begin; row < end; ++row) {
        std::uint64_t hash = 0xCBF29CE484222325u;
        for (std::size_t col = 0; col < v_.cols; ++col) {
          const double value = x[(row - begin) * v_.cols + col] + 0.0;  // -0 is 0
          hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001B3u;
          hash ^= hash >> 29;
        }
        hashes[row] = hash;
      }
    });
    return hashes;
  }

  // Rows of one dump that stand at other places of the other.
  std::string RowsText() const {
    if (v_.rows < 2 || v_.rows > kMostRows || v_.cols < 2) return "";
    const std::vector<std::uint64_t> x = RowHashes(first_, a_), y = RowHashes(second_, b_);
    std::map<std::uint64_t, std::size_t> places;  // of rows of the first; kNone: of several
    constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    for (std::size_t row = 0; row < x.size(); ++row) {
      const auto [found, is_new] = places.emplace(x[row], row);
      if (!is_new) found->second = kNone;
    }
    std::size_t moved = 0, example = 0, from = 0;
    std::map<std::ptrdiff_t, std::size_t> shifts;
    for (std::size_t row = 0; row < y.size(); ++row) {
      if (x[row] == y[row]) continue;
      const auto found = places.find(y[row]);
      if (found == places.end() || found->second == kNone) continue;
      if (moved++ == 0) {
        example = row;
        from = found->second;
      }
      ++shifts[static_cast<std::ptrdiff_t>(row) - static_cast<std::ptrdiff_t>(found->second)];
    }
    if (moved * 2 <= v_.rows_different || moved == 0) return "";
    const auto [shift, count] =
        *std::max_element(shifts.begin(), shifts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
    if (count > 1 && count * 10 >= moved * 9) {
      return std::to_string(count) + " of " + std::to_string(v_.rows) + " rows stand " +
             std::to_string(std::abs(shift)) + (shift > 0 ? " later" : " earlier") +
             " in the second";
    }
    return std::to_string(moved) + " of " + std::to_string(v_.rows) +
           " rows stand in another order: row " + std::to_string(example) +
           " of the second is row " + std::to_string(from) + " of the first";
  }

  const DumpSource& first_;
  const DumpSource& second_;
  const SafetensorsTensor& a_;
  const SafetensorsTensor& b_;
  DumpedTensor& v_;
  Part all_;
};

}  // namespace

bool DumpReport::Accepted() const {
  return only_first.empty() && only_second.empty() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const DumpedTensor& t) { return t.accepted; });
}

std::vector<std::pair<std::string, std::string>> ParseDumpNames(const Json& json,
                                                                const std::string& where) {
  if (!json.is_object()) {
    throw Error(where,
                "is no object of names: write {\"name in the first\": \"name in the second\"}");
  }
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [first, value] : json.items()) {
    const std::string second = value.is_string() ? value.get<std::string>() : "";
    if (second.empty() || std::count(first.begin(), first.end(), '*') !=
                              std::count(second.begin(), second.end(), '*')) {
      throw Error(
          where + "#/" + first,
          "is " + value.dump() + "; a name has as many \"*\" as the one that it stands for");
    }
    names.emplace_back(first, second);
  }
  return names;
}

DumpReport CompareDumps(const std::filesystem::path& first, const std::filesystem::path& second,
                        const DumpOptions& options) {
  const IeeeArithmetic ieee;
  return CompareDumps(DumpSource(first, options.read_npz), DumpSource(second, options.read_npz),
                      options);
}

DumpReport CompareDumps(const DumpSource& a, const DumpSource& b, const DumpOptions& options) {
  const IeeeArithmetic ieee;
  DumpReport report;
  report.path = a.path();
  report.second_path = b.path();
  std::map<std::string, std::string> pairs;  // first to second
  std::map<std::string, std::string> plain = PlainNames(b.tensors());
  for (const auto& [name, tensor] : a.tensors().tensors) {
    const std::string stated = StatedName(name, options);
    if (b.tensors().tensors.contains(stated)) {
      pairs[name] = stated;
    } else if (b.tensors().tensors.contains(name)) {
      pairs[name] = name;
    }
  }
  for (const auto& [form, name] : PlainNames(a.tensors())) {
    const auto found = plain.find(form);
    if (pairs.contains(name) || found == plain.end()) continue;
    if (!a.tensors().tensors.contains(found->second)) pairs[name] = found->second;
  }
  const bool one_each = a.tensors().tensors.size() == 1 && b.tensors().tensors.size() == 1;
  if (one_each) {
    pairs = {{a.tensors().tensors.begin()->first, b.tensors().tensors.begin()->first}};
  }
  if (pairs.empty()) {
    throw Error(b.path(), "has no tensor of a name of " + a.path() +
                              "; dump the same modules under the same names");
  }
  std::map<std::string, bool> used;
  std::size_t done = 0, all = 0;
  for (const auto& [name, other] : pairs) {
    used[other] = true;
    all += a.tensors().tensors.at(name).bytes.size() + b.tensors().tensors.at(other).bytes.size();
  }
  for (const auto& [name, tensor] : a.tensors().tensors) {
    if (!pairs.contains(name)) report.only_first.push_back(name);
  }
  for (const auto& [name, tensor] : b.tensors().tensors) {
    if (!used.contains(name)) report.only_second.push_back(name);
  }
  for (const auto& [name, other] : pairs) {
    const SafetensorsTensor& x = a.tensors().tensors.at(name);
    const SafetensorsTensor& y = b.tensors().tensors.at(other);
    DumpedTensor t{.name = name,
                   .second_name = other,
                   .dtype = x.dtype,
                   .second_dtype = y.dtype,
                   .shape = x.shape,
                   .second_shape = y.shape};
    TensorComparer(a, b, x, y, &t).Compare();
    t.accepted = t.Equal() || (!options.only_equal && t.problem.empty() && t.lone_nans == 0 &&
                               t.sqnr_db >= options.least_sqnr_db);
    report.tensors.push_back(std::move(t));
    done += x.bytes.size() + y.bytes.size();
    if (options.progress) options.progress(done, all);
  }
  const auto less = [](const auto& p, const auto& q) { return NaturalLess(p, q); };
  std::sort(report.tensors.begin(), report.tensors.end(),
            [&](const DumpedTensor& p, const DumpedTensor& q) { return less(p.name, q.name); });
  std::sort(report.only_first.begin(), report.only_first.end(), less);
  std::sort(report.only_second.begin(), report.only_second.end(), less);
  return report;
}

}  // namespace fp4lab
