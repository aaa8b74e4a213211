#include "fp4lab/checkpoint/check.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/checkpoint/gguf.h"
#include "fp4lab/checkpoint/groups/group_check.h"
#include "fp4lab/checkpoint/judge_matrix.h"
#include "fp4lab/checkpoint/scan.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/exchange/shape.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/exchange/vendors/vendor.h"
#include "fp4lab/io/renamed_key.h"

namespace fp4lab {
namespace {

const SafetensorsTensor* Find(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  return found == file.tensors.end() ? nullptr : &found->second;
}

std::vector<float> NumbersOf(const SafetensorsTensor& t) {
  const std::optional<NumberType> type = FindNumberType(t.dtype);
  if (!type) return {};
  return DecodeNumbers(*type, {t.bytes.data(), t.bytes.size()},
                       t.bytes.size() * 8 / static_cast<std::size_t>(Bits(*type)));
}

// The text as a JSON object; nullopt for anything else.
std::optional<Json> ObjectIn(std::string_view text) {
  try {
    Json json = ParseJson(text, "marker");
    if (json.is_object()) return json;
  } catch (const Error&) {  // another program's text
  }
  return std::nullopt;
}

std::size_t Elements(const SafetensorsTensor& t) {
  std::size_t count = 1;
  for (const std::size_t n : t.shape) count *= n;
  return count;
}

std::string_view BytesAsText(const SafetensorsTensor& t) {
  return {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()};
}

std::string ScaleName(const Reading& r, std::string_view dtype) {
  return r.numbers ? std::string(dtype) : UpperName(r.scale);
}

class Checker {
 public:
  Checker(const ModelFiles& checkpoint, const CheckpointOptions& options)
      : checkpoint_(checkpoint), file_(checkpoint.tensors), options_(options) {}

  CheckReport Check() {
    report_.path = checkpoint_.path;
    report_.config = checkpoint_.config;
    report_.tensors = file_.tensors.size();
    for (const Shard& s : checkpoint_.shards) {
      report_.shards.push_back(s.name);
      report_.bytes += s.bytes;
    }
    if (!options_.original.empty()) {
      original_.emplace(options_.original, options_.read_npz);
      references_.original = &*original_;
    }
    if (!options_.values.empty()) {
      values_.emplace(options_.values, options_.read_npz);
      references_.values = &*values_;
    }
    entries_ = ListStored(file_);
    const std::vector<GroupEntry> groups = ListGroupMatrices(checkpoint_);
    only_ = entries_.size() + groups.size() == 1 && checkpoint_.ggufs.empty();
    for (const StoredFileEntry& entry : entries_) {
      CheckInterrupt();
      if (entry.convention == "fp4lab") {
        CheckOwn(entry);
      } else {
        CheckVendor({entry.name, FindVendor(entry.convention)});
      }
      if (options_.progress) options_.progress(done_, report_.bytes);
    }
    for (const GroupEntry& entry : groups) {
      CheckInterrupt();
      CheckGroups(ReadGroupMatrix(checkpoint_, entry));
      if (options_.progress) options_.progress(done_, report_.bytes);
    }
    std::ranges::stable_sort(report_.matrices, {}, &CheckedMatrix::name);
    for (const auto& [shard, file] : checkpoint_.ggufs) report_.tensors += file.tensors.size();
    CheckGguf(checkpoint_, options_, references_, &report_, &done_, report_.bytes);
    JudgeNeighbours(report_.config, &report_.matrices, &report_.findings);
    FindUnused();
    FindMissingExperts();
    report_.findings.insert(report_.findings.end(), checkpoint_.findings.begin(),
                            checkpoint_.findings.end());
    return std::move(report_);
  }

 private:
  void Use(const std::string& name) {
    used_.insert(name);
    const auto found = checkpoint_.shard.find(name);
    if (found != checkpoint_.shard.end()) shards_.insert(found->second);
  }

  Streamed Stream(const SafetensorsTensor& t) const {
    const std::span<const std::byte> bytes(t.bytes.data(), t.bytes.size());
    return {bytes, checkpoint_.ContentOf(bytes)};
  }

  ReadingHints WithConfig(ReadingHints hints, const Vendor& vendor,
                          const SafetensorsTensor& codes) const {
    const QuantizationConfig& config = checkpoint_.config;
    if (codes.dtype.starts_with("F8_")) {
      hints.block_rows = config.block_rows;
      hints.block_cols = config.block_cols;
    } else if (hints.block_cols == 0) {
      hints.block_cols = config.group_size;
    }
    if (vendor.name == "mlx" && config.algorithm == "mxfp8") hints.element = FormatId::kE4M3;
    return hints;
  }

  void CheckVendor(const VendorEntry& entry) {
    const Vendor& vendor = *entry.vendor;
    const std::string prefix = PrefixOf(entry);
    CheckedMatrix m;
    m.name = entry.name.empty() ? std::string(vendor.codes) : entry.name;
    m.naming = std::string(vendor.name);
    shards_.clear();
    const std::string codes_name = prefix + std::string(vendor.codes);
    const std::string scales_name = prefix + std::string(vendor.scales);
    const SafetensorsTensor& codes = *Find(file_, codes_name);
    const SafetensorsTensor& scales = *Find(file_, scales_name);
    Use(codes_name);
    Use(scales_name);
    TakeNumbers(entry, &m);
    m.bytes = codes.bytes.size() + scales.bytes.size();
    for (const std::size_t s : shards_) m.shards.push_back(checkpoint_.shards[s].name);
    if (shards_.size() > 1) {
      Report(FindingKind::kSplit, "its tensors are in " + m.shards.front() + " and " + m.shards[1],
             &m, &report_.findings);
    }
    const ReadingFound found = FindReading({codes.dtype, codes.shape}, {scales.dtype, scales.shape},
                                           WithConfig(HintsOf(file_, entry), vendor, codes));
    m.reading = found.reading;
    if (!found.problem.empty()) {
      Report(FindingKind::kGrid, found.problem + ExchangedText(entry, scales), &m,
             &report_.findings);
    } else {
      if (m.reading.codes == CodeOrder::kLowFirst) m.reading.codes = vendor.codes_order;
      m.formula = FormulaName(m.reading);
      m.scales = ScaleName(m.reading, scales.dtype);
      JudgeDtypes(codes, scales, &m);
      JudgeBytes(Stream(codes), Stream(scales), scales.dtype, &m);
      JudgeConfig(&m);
      JudgeMarker(entry, &m);
    }
    const bool promised = vendor.name == "modelopt" || vendor.name == "compressed-tensors" ||
                          vendor.name == "comfyui" || vendor.name == "modelopt-experts" ||
                          vendor.name.starts_with("te");
    const bool needs = promised && m.formula == "NVFP4" && !m.reading.numbers;
    JudgeNumbers(needs, prefix + std::string(vendor.tensor_scale[0]), &m, &report_.findings);
    if (!m.findings.empty() && m.findings.back() == FindingKind::kTensorScaleMissing) {
      const std::string text = MissingNumberText(entry);
      if (!text.empty()) report_.findings.back().text = text;
    }
    references_.other_scales = [&] { return OtherScalesOf(entry, scales); };
    JudgeReferences(references_, {Stream(codes).bytes, Stream(scales).bytes, scales.dtype}, only_,
                    &m, &report_.findings);
    references_.other_scales = {};
    done_ += m.bytes;
    report_.matrices.push_back(std::move(m));
  }

  // The scales of matrices with the same names and shapes.
  std::vector<NamedScales> OtherScalesOf(const VendorEntry& entry,
                                         const SafetensorsTensor& scales) const {
    constexpr std::size_t kMost = 512;
    std::vector<NamedScales> others;
    for (const StoredFileEntry& other : entries_) {
      if (other.convention != entry.vendor->name || other.name == entry.name) continue;
      const SafetensorsTensor* t =
          Find(file_, PrefixOf({other.name, entry.vendor}) + std::string(entry.vendor->scales));
      if (t == nullptr || t->dtype != scales.dtype || t->shape != scales.shape) continue;
      others.push_back({other.name, {t->bytes.data(), t->bytes.size()}});
      if (others.size() == kMost) break;
    }
    return others;
  }

  // A matrix of table or integer codes in groups.
  void CheckGroups(const GroupMatrix& g) {
    CheckedMatrix m;
    m.name = g.name.empty() ? std::string(g.naming->codes) : g.name;
    m.naming = std::string(g.naming->name);
    m.bytes = g.bytes;
    shards_.clear();
    for (const std::string& name : g.tensors) Use(name);
    for (const std::size_t s : shards_) m.shards.push_back(checkpoint_.shards[s].name);
    if (shards_.size() > 1) {
      Report(FindingKind::kSplit, "its tensors are in " + m.shards.front() + " and " + m.shards[1],
             &m, &report_.findings);
    }
    JudgeGroups(g, references_, only_, &m, &report_.findings);
    const FileContent* content = checkpoint_.ContentOf(g.codes);
    if (content != nullptr) content->Forget(g.codes);
    done_ += m.bytes;
    report_.matrices.push_back(std::move(m));
  }

  // The hint where scales do not fit and the tensor scale has their grid; "" otherwise.
  std::string ExchangedText(const VendorEntry& entry, const SafetensorsTensor& scales) const {
    for (const std::string_view suffix : entry.vendor->tensor_scale) {
      if (suffix.empty()) continue;
      const std::string name = PrefixOf(entry) + std::string(suffix);
      const SafetensorsTensor* number = Find(file_, name);
      if (number == nullptr || number->shape.size() < 2 || Elements(scales) != 1) continue;
      return "; " + name + " has such a grid: the names of the two are exchanged";
    }
    return "";
  }

  // Where a tensor scale may be that is not found under its name; "" where there is no trace.
  std::string MissingNumberText(const VendorEntry& entry) const {
    const std::string prefix = PrefixOf(entry);
    for (const std::string_view suffix : entry.vendor->tensor_scale) {
      const SafetensorsTensor* number =
          suffix.empty() ? nullptr : Find(file_, prefix + std::string(suffix));
      if (number == nullptr) continue;
      return prefix + std::string(suffix) + " is " + number->dtype +
             "; a tensor scale is F32, BF16 or F16";
    }
    const std::string none = "has no " + prefix + std::string(entry.vendor->tensor_scale[0]);
    for (const Vendor& other : kVendors) {
      for (const std::string_view suffix : other.tensor_scale) {
        const std::string name = prefix + std::string(suffix);
        if (suffix.empty() || Find(file_, name) == nullptr) continue;
        return none + "; " + name + " is there, as " + std::string(other.name) + " names a " +
               std::string(Name(other.convention));
      }
    }
    for (const std::string_view suffix : entry.vendor->tensor_scale) {
      const std::string name = suffix.empty() ? "" : OtherPrefix(prefix, suffix);
      if (!name.empty()) return none + "; " + name + " is there, under another prefix";
    }
    return "";
  }

  // A tensor with this suffix under a prefix that ends as `prefix` does, or the reverse; "" if
  // there is none, or more than one. Each search reads all names: later ones find nothing.
  std::string OtherPrefix(const std::string& prefix, std::string_view suffix) const {
    std::string found;
    if (prefix.empty() || ++searches_ > kMostSearches) return found;
    for (const auto& [name, tensor] : file_.tensors) {
      if (!name.ends_with(suffix) || used_.contains(name)) continue;
      const std::string other = name.substr(0, name.size() - suffix.size());
      if (other.empty() || other == prefix) continue;
      if (!other.ends_with("." + prefix) && !prefix.ends_with("." + other)) continue;
      if (!found.empty()) return "";
      found = name;
    }
    return found;
  }

  void TakeNumbers(const VendorEntry& entry, CheckedMatrix* m) {
    const Vendor& vendor = *entry.vendor;
    const std::string prefix = PrefixOf(entry);
    for (const std::string_view suffix : vendor.tensor_scale) {
      if (suffix.empty()) continue;
      const std::string name = prefix + std::string(suffix);
      const SafetensorsTensor* t = Find(file_, name);
      if (t == nullptr) continue;
      Use(name);
      m->tensor_scale = NumbersOf(*t);
      m->convention = vendor.convention;
      break;
    }
    for (const std::string_view suffix : {vendor.input, std::string_view("input_scale")}) {
      if (suffix.empty()) continue;
      const std::string name = prefix + std::string(suffix);
      const SafetensorsTensor* t = Find(file_, name);
      if (t == nullptr) continue;
      Use(name);
      m->input_scale = NumbersOf(*t);
      break;
    }
    if (!vendor.marker.empty()) Use(prefix + std::string(vendor.marker));
  }

  void JudgeDtypes(const SafetensorsTensor& codes, const SafetensorsTensor& scales,
                   CheckedMatrix* m) {
    const Reading& r = m->reading;
    if (r.codes_dtype_wrong) {
      Report(FindingKind::kCodesDtype,
             "codes are declared " + codes.dtype + "; the grid of the scales is that of packed " +
                 m->formula,
             m, &report_.findings);
    }
    if (r.scales_dtype_wrong) {
      Report(FindingKind::kScaleDtype,
             "scales are declared " + scales.dtype + "; the grid of 1x" +
                 std::to_string(r.block_cols) + " blocks is that of " + m->formula + ", in " +
                 m->scales,
             m, &report_.findings);
    }
  }

  void JudgeBytes(const Streamed& codes, const Streamed& scales, std::string_view dtype,
                  CheckedMatrix* m) {
    if (codes.bytes.empty() || scales.bytes.empty()) return;
    const Reading& r = m->reading;
    const CodeScan code_scan = ScanCodes(codes, r);
    const ScaleScan scale_scan = ScanScales(scales, dtype, r);
    const std::size_t dead =
        scale_scan.zeros > 0 ? DeadBlocks(codes, scales, dtype, r) : std::size_t{0};
    JudgeCodes(code_scan, m, &report_.findings);
    JudgeScales(scale_scan, dead, m, &report_.findings);
    const bool empty = code_scan.any == code_scan.all;
    if (!empty && !scale_scan.constant) {
      const std::string rows = UnwrittenRowsText(codes, scales, dtype, r);
      if (!rows.empty()) Report(FindingKind::kUnwrittenRows, rows, m, &report_.findings);
    }
  }

  void JudgeConfig(CheckedMatrix* m) {
    const QuantizationConfig& c = checkpoint_.config;
    const Reading& r = m->reading;
    const auto report = [&](const std::string& text) {
      Report(FindingKind::kConfig, c.file + " " + text, m, &report_.findings);
    };
    const std::string block = std::to_string(r.block_rows) + "x" + std::to_string(r.block_cols);
    const bool four = FormatOf(r.element).bits == 4;
    if (four && c.group_size > 0 && static_cast<std::size_t>(c.group_size) != r.block_cols) {
      report("states groups of " + std::to_string(c.group_size) + "; its blocks are " + block);
    }
    if (four && (c.method == "fp8" || c.algorithm == "FP8")) {
      report("states FP8; it is " + m->formula);
    }
    const bool blocks = !four && r.block_rows > 1;
    if (blocks && c.block_rows > 0 &&
        (static_cast<std::size_t>(c.block_rows) != r.block_rows ||
         static_cast<std::size_t>(c.block_cols) != r.block_cols)) {
      report("states blocks of " + std::to_string(c.block_rows) + "x" +
             std::to_string(c.block_cols) + "; its blocks are " + block);
    }
    if (IsExcluded(c, m->name)) report("excludes it from quantization; it is " + m->formula);
  }

  // ComfyUI's marker: {"format": "nvfp4"}.
  void JudgeMarker(const VendorEntry& entry, CheckedMatrix* m) {
    if (entry.vendor->marker.empty()) return;
    const std::string name = PrefixOf(entry) + std::string(entry.vendor->marker);
    const SafetensorsTensor* marker = Find(file_, name);
    if (marker == nullptr) return;
    const std::optional<Json> json = ObjectIn(BytesAsText(*marker));
    const auto format = json ? json->find("format") : Json::const_iterator{};
    if (!json || format == json->end() || !format->is_string()) {
      Report(FindingKind::kConfig, name + " states no format", m, &report_.findings);
      return;
    }
    const std::string text = format->get<std::string>();
    const bool fits = text == "nvfp4"           ? m->formula == "NVFP4"
                      : text == "mxfp4"         ? m->formula == "MXFP4"
                      : text == "mxfp8"         ? m->formula.starts_with("MXFP8")
                      : text == "float8_e4m3fn" ? m->reading.element == FormatId::kE4M3
                      : text == "float8_e5m2"   ? m->reading.element == FormatId::kE5M2
                                                : true;
    if (!fits) {
      Report(FindingKind::kConfig, name + " states " + text + "; it is " + m->formula, m,
             &report_.findings);
    }
  }

  // A matrix in fp4lab's own convention, which describes itself.
  void CheckOwn(const StoredFileEntry& entry) {
    CheckedMatrix m;
    m.name = entry.name;
    m.naming = entry.convention;
    try {
      const StoredMatrix s = TakeStored(file_, entry.name, entry.name).matrix;
      m.convention = s.layout.tensor_scale;
      m.tensor_scale = s.tensor_scale;
      m.bytes = s.codes.size() + s.scales.size();
      const StoredSizes sizes = SizesOf(s, entry.name);
      Reading& r = m.reading;
      r.element = s.element;
      r.codes = s.layout.codes;
      r.rows = s.layout.transposed ? s.cols : s.rows;
      r.cols = s.layout.transposed ? s.rows : s.cols;
      r.scale = s.scale;
      r.block_rows = static_cast<std::size_t>(s.layout.expanded_scales ? 1 : s.block_rows);
      r.block_cols = static_cast<std::size_t>(s.block_cols);
      const NamedScaleOrder& tile = Named(s.layout.scales);
      r.scale_rows = sizes.scale_rows;
      r.scale_cols = sizes.scale_cols;
      r.stored_rows = RoundUp(sizes.scale_rows, tile.tile_rows);
      r.stored_cols = RoundUp(sizes.scale_cols, tile.tile_cols);
      r.order = s.layout.scales;
      m.formula = FormulaName(r);
      m.scales = ScaleName(r, "");
      const auto codes = std::as_bytes(std::span(s.codes));
      const auto scales = std::as_bytes(std::span(s.scales));
      const bool packed_rows = r.codes == CodeOrder::kBytes || r.cols % 2 == 0;
      if (r.block_rows == 0) {
        if (!codes.empty()) JudgeCodes(ScanCodes({codes}, r), &m, &report_.findings);
      } else if (packed_rows && !s.layout.transposed) {
        JudgeBytes({codes}, {scales}, "U8", &m);
      }
      if (r.block_rows != 0) JudgeNumbers(false, "", &m, &report_.findings);
      if (!s.layout.transposed) {
        JudgeReferences(references_, {codes, scales, "U8"}, only_, &m, &report_.findings);
      }
    } catch (const Error& error) {
      Report(FindingKind::kUnreadable, error.what(), &m, &report_.findings);
    }
    const std::string prefix = entry.name.empty() ? "" : entry.name + ".";
    for (const std::string part : {"codes", "scales", "tensor_scale", kOldTensorScale.data()}) {
      Use(prefix + part);
    }
    done_ += m.bytes;
    report_.matrices.push_back(std::move(m));
  }

  // Tensors whose names are parts of a quantized matrix that is not there.
  void FindUnused() {
    static constexpr std::array<std::string_view, 11> kParts = {
        "weight_scale",       "weight_scale_2",    "weight_scale_inv", "weight_global_scale",
        "input_global_scale", "weight_packed",     "_scales",          "_blocks",
        "_weight_qdata",      "_per_tensor_scale", "comfy_quant"};
    // FP8 without scales is a plain cast, unless other matrices of the checkpoint have scales.
    const bool has_fp8 =
        std::any_of(report_.matrices.begin(), report_.matrices.end(), [](const CheckedMatrix& m) {
          return !m.formula.empty() && FormatOf(m.reading.element).bits == 8;
        });
    for (const auto& [name, tensor] : file_.tensors) {
      if (used_.contains(name)) continue;
      const bool left = name.find("_quantizer.") != std::string::npos;
      const std::size_t dot = name.rfind('.');
      const std::string prefix = dot == std::string::npos ? "" : name.substr(0, dot + 1);
      const std::string_view leaf = std::string_view(name).substr(prefix.size());
      const bool integers = Find(file_, prefix + "weight_shape") != nullptr ||
                            Find(file_, prefix + "biases") != nullptr;
      const bool is_part = std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
        return part.front() == '_' ? leaf.ends_with(part) : leaf == part;
      });
      const bool codes = tensor.dtype == "U8" ||
                         (has_fp8 && tensor.dtype.starts_with("F8_E") && tensor.dtype != "F8_E8M0");
      const bool raw_codes = leaf == "weight" && codes && tensor.shape.size() >= 2 &&
                             Find(file_, name + ".absmax") == nullptr &&
                             Find(file_, prefix + "SCB") == nullptr;
      if (integers || !(left || is_part || raw_codes)) continue;
      const SafetensorsTensor* weight = Find(file_, prefix + "weight");
      std::string why = "no matrix uses it";
      if (left) {
        why += ": it is left over from calibration";
      } else if (raw_codes || leaf == "weight_packed") {
        why = "holds codes (" + tensor.dtype + " " + ShapeText(tensor.shape) +
              ") without scales under a known name";
      } else if (weight != nullptr) {
        why += ": " + prefix + "weight is " + weight->dtype;
      }
      report_.findings.push_back({FindingKind::kUnused, name, why + OtherNameText(prefix, leaf)});
    }
  }

  // Experts whose numbers have gaps, where the checkpoint is no single shard.
  void FindMissingExperts() {
    if (checkpoint_.shards.size() == 1 &&
        checkpoint_.shards[0].name.find("-of-") != std::string::npos) {
      return;
    }
    static constexpr std::string_view kExperts = ".experts.";
    std::map<std::string, std::set<std::size_t>> numbers;  // by the name before them
    for (const auto& [name, tensor] : file_.tensors) {
      const std::size_t at = name.find(kExperts);
      if (at == std::string::npos) continue;
      const char* const first = name.data() + at + kExperts.size();
      std::size_t number = 0;
      const auto [end, status] = std::from_chars(first, name.data() + name.size(), number);
      if (status != std::errc{} || *end != '.' || number > 65535) continue;
      numbers[name.substr(0, at + kExperts.size() - 1)].insert(number);
    }
    for (const auto& [name, found] : numbers) {
      const std::size_t count = *found.rbegin() + 1;
      if (found.size() == count || found.size() < 3 || !found.contains(0)) continue;
      std::string missing;
      std::size_t listed = 0;
      for (std::size_t n = 0; n < count && listed < 4; ++n) {
        if (!found.contains(n)) missing += (listed++ == 0 ? "" : ", ") + std::to_string(n);
      }
      report_.findings.push_back({FindingKind::kMissingPart, name,
                                  "has no expert " + missing +
                                      (count - found.size() > listed ? ", ..." : "") + " of 0.." +
                                      std::to_string(count - 1)});
    }
  }

  // The tensor that may be the part of a matrix, by a near name: codes or scales of another prefix,
  // a misspelled suffix. "" where nothing is near.
  std::string OtherNameText(const std::string& prefix, std::string_view leaf) const {
    const bool codes = leaf == "weight" || leaf == "weight_packed";
    for (const Vendor& vendor : kVendors) {
      if (vendor.codes != (codes ? leaf : "weight") && vendor.codes != "weight_packed") continue;
      const std::string name = OtherPrefix(prefix, codes ? vendor.scales : vendor.codes);
      if (!name.empty()) return "; " + name + " has another prefix";
    }
    if (codes || Find(file_, prefix + "weight") == nullptr) return "";
    std::vector<std::string> known;
    for (const Vendor& vendor : kVendors) {
      if (vendor.codes != "weight") continue;
      for (const std::string_view suffix : {vendor.scales, vendor.tensor_scale[0]}) {
        if (!suffix.empty() && Find(file_, prefix + std::string(suffix)) == nullptr) {
          known.emplace_back(suffix);
        }
        if (suffix == leaf) return "";
      }
    }
    const std::vector<std::string> near = NearNames(leaf, known);
    return near.empty() ? "" : "; did you mean " + prefix + near[0] + "?";
  }

  const ModelFiles& checkpoint_;
  const SafetensorsFile& file_;
  const CheckpointOptions& options_;
  CheckReport report_;
  std::set<std::string> used_;
  std::set<std::size_t> shards_;  // of the present matrix
  std::size_t done_ = 0;
  std::vector<StoredFileEntry> entries_;
  std::optional<OriginalSource> original_, values_;
  References references_;
  bool only_ = false;  // there is one matrix
  static constexpr std::size_t kMostSearches = 256;
  mutable std::size_t searches_ = 0;  // of OtherPrefix
};

}  // namespace

CheckReport CheckCheckpoint(const ModelFiles& checkpoint, const CheckpointOptions& options) {
  const IeeeArithmetic ieee;
  return Checker(checkpoint, options).Check();
}

CheckReport CheckCheckpoint(const std::filesystem::path& path, const CheckpointOptions& options) {
  const IeeeArithmetic ieee;
  return CheckCheckpoint(OpenCheckpoint(path, options.read_npz), options);
}

}  // namespace fp4lab
