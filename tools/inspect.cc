// fp4lab inspect: prints the layout, scales and errors of a quantized matrix in a file, or a list
// of the file's matrices.
#include "fp4lab/exchange/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/order/row_parts.h"
#include "fp4lab/io/file.h"
#include "tools/options/commands.h"
#include "tools/options/file_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct InspectCommand {
  std::string file, dialect, error_map;
  NumberOptions input;
  LayoutOptions read;
  bool json = false, list = false;
};

// Everything that the command reports about one matrix.
struct Findings {
  StoredFile file;
  std::string dialect;  // decoded in its order of operations; empty: in that of the convention
  StoredStatistics statistics;
  std::vector<ScaleCandidate> candidates;
  std::optional<StoredError> error;
};

Json Number(double value) {  // JSON has no Inf and NaN
  if (std::isfinite(value)) return value;
  return ShortestText(value);
}

// The first scale of a bin of the histogram: a byte, or of numbers a power of two.
std::string ScaleText(const StoredMatrix& m, std::size_t byte) {
  if (m.layout.scale_type != ScaleType::kByte) {
    return byte == 0      ? "below 2^-126"
           : byte == 0xFF ? "not finite"
                          : "2^" + std::to_string(static_cast<int>(byte) - 127);
  }
  char hex[8];
  std::snprintf(hex, sizeof hex, "0x%02X", static_cast<unsigned>(byte));
  return std::string(hex) + " = " + ShortestText(Decode(m.scale, static_cast<std::uint32_t>(byte)));
}

std::string Share(std::size_t part, std::size_t all) {
  char text[64];
  std::snprintf(text, sizeof text, "%zu (%.2f%%)", part,
                all == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(all));
  return text;
}

void Line(const char* what, const std::string& text) {
  Print("%-14s%s\n", what, Printable(text).c_str());
}

// Prints a histogram of the scales by exponent: one line each, with a bar of at most 40 characters.
void PrintHistogram(const StoredMatrix& m, const StoredStatistics& s) {
  const bool numbers = m.layout.scale_type != ScaleType::kByte;
  const int bits = numbers ? 0 : FormatOf(m.scale).mantissa_bits;
  std::vector<std::size_t> counts(256u >> bits);
  for (std::size_t byte = 0; byte < 256; ++byte) counts[byte >> bits] += s.scales[byte];
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  Print("scale histogram (first %s of each exponent, count):\n", numbers ? "number" : "byte");
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const std::size_t bar = DivideUp(counts[i] * 40, most);
    Print("  %-20s %9zu %s\n", ScaleText(m, i << bits).c_str(), counts[i],
          std::string(bar, '#').c_str());
  }
}

void PrintCandidates(const std::vector<ScaleCandidate>& candidates) {
  Print("scale layouts of this size:\n");
  for (const ScaleCandidate& c : candidates) {
    std::string text = std::string(Named(c.order).name) + (c.transposed ? ", transposed" : "") +
                       (c.expanded ? ", expanded" : "");
    text += std::string(text.size() < 30 ? 30 - text.size() : 1, ' ');
    text += std::to_string(c.padding) + " bytes of padding";
    if (c.padding > 0) {
      text += c.padding_not_zero == 0 ? ", all 0"
                                      : ", " + std::to_string(c.padding_not_zero) + " not 0";
    }
    if (c.expanded) text += ", " + std::to_string(c.not_repeated) + " not repeated";
    Print("  %s%s\n", text.c_str(), c.stated ? "  <- as read" : "");
  }
}

// "2 numbers, one for each 64 rows: 0.5 to 1.25"
std::string NumbersText(const StoredMatrix& m) {
  const auto [least, most] = std::minmax_element(m.tensor_scale.begin(), m.tensor_scale.end());
  const std::size_t parts = PartsWithOneNumber(m.tensor_scale);
  const std::string range = ShortestText(*least) + " to " + ShortestText(*most);
  if (parts == m.tensor_scale.size()) return CountText(parts, "number") + ", " + range;
  return CountText(parts, "number") + ", one for each " + CountText(m.rows / parts, "row") + ": " +
         range;
}

// What the bytes of scales say without any other file: that they were not written. "" otherwise.
std::string ScalesNote(const Findings& f) {
  const StoredMatrix& m = f.file.matrix;
  const StoredStatistics& s = f.statistics;
  const auto first =
      std::find_if(s.scales.begin(), s.scales.end(), [](std::size_t count) { return count != 0; });
  const std::size_t enough = m.scale == FormatId::kE8M0 ? 32 : 16;  // fewer may be equal by chance
  if (s.blocks < enough || *first != s.blocks || s.zeros == s.elements) return "";
  const auto byte = static_cast<std::size_t>(first - s.scales.begin());
  return "all " + std::to_string(s.blocks) + " scales are " + ScaleText(m, byte) +
         " although codes are not 0: they were not written, or a placeholder was; " +
         "`fp4lab check` looks through the file";
}

void PrintFindings(const Findings& f, const std::string& place) {
  const StoredMatrix& m = f.file.matrix;
  const StoredStatistics& s = f.statistics;
  Line("file", place + " (" + f.file.entry.convention + ")");
  if (!f.file.entry.name.empty()) Line("matrix", f.file.entry.name);
  Line("holds", FormatText(m));
  if (!f.dialect.empty()) Line("dialect", f.dialect);
  Line("layout", LayoutText(m));
  Line("bytes", std::to_string(m.codes.size()) + " of codes, " + std::to_string(m.scales.size()) +
                    " of scales");
  if (m.tensor_scale.size() == 1) Line("tensor scale", ShortestText(m.tensor_scale[0]));
  if (m.tensor_scale.size() > 1) Line("tensor scale", NumbersText(m));
  Line("largest value", ShortestText(s.largest_value));
  Line("codes of 0", Share(s.zeros, s.elements));
  Line("largest codes", Share(s.largest, s.elements));
  if (s.blocks > 0) {
    Line("blocks", std::to_string(s.blocks));
    Line("scales of 0", Share(s.zero_scales, s.blocks));
    Line("largest scale", Share(s.largest_scales, s.blocks) + " at the format's limit");
    if (s.nan_scales > 0) Line("NaN scales", Share(s.nan_scales, s.blocks));
    if (const std::string note = ScalesNote(f); !note.empty()) Line("note", note);
    PrintHistogram(m, s);
    PrintCandidates(f.candidates);
  }
  if (!f.error) return;
  Print("errors against the input:\n");
  Print("  amax %s, SQNR %.2f dB, mse %.6g, largest error %s\n",
        ShortestText(f.error->amax).c_str(), f.error->sqnr_db, f.error->mse,
        ShortestText(f.error->largest_error).c_str());
  Print("  underflow %.2f%% of the non-zero elements, clip %.2f%%, not finite %zu\n",
        f.error->underflow_percent, f.error->clip_percent, f.error->not_finite);
}

Json CandidatesJson(const std::vector<ScaleCandidate>& candidates) {
  Json list = Json::array();
  for (const ScaleCandidate& c : candidates) {
    list.push_back({{"scales_order", Named(c.order).name},
                    {"transposed", c.transposed},
                    {"expanded_scales", c.expanded},
                    {"padding_bytes", c.padding},
                    {"padding_not_zero", c.padding_not_zero},
                    {"not_repeated", c.not_repeated},
                    {"as_read", c.stated}});
  }
  return list;
}

Json FindingsJson(const Findings& f, const std::string& place) {
  const StoredStatistics& s = f.statistics;
  Json json = {{"file", place},
               {"name", f.file.entry.name},
               {"convention", f.file.entry.convention},
               {"dialect", f.dialect},
               {"format", FormatJson(f.file.matrix)},
               {"largest_value", Number(s.largest_value)},
               {"elements", s.elements},
               {"zero_codes", s.zeros},
               {"largest_codes", s.largest},
               {"blocks", s.blocks},
               {"zero_scales", s.zero_scales},
               {"nan_scales", s.nan_scales},
               {"largest_scales", s.largest_scales},
               {"scale_histogram", s.scales},
               {"note", ScalesNote(f)},
               {"scale_layouts", CandidatesJson(f.candidates)}};
  if (!f.error) return json;
  json["error"] = {{"amax", f.error->amax},
                   {"sqnr_db", Number(f.error->sqnr_db)},
                   {"mse", f.error->mse},
                   {"largest_error", f.error->largest_error},
                   {"underflow_percent", f.error->underflow_percent},
                   {"clip_percent", f.error->clip_percent},
                   {"not_finite", f.error->not_finite},
                   {"block_grid", {f.error->blocks.rows, f.error->blocks.cols}},
                   {"block_error", f.error->blocks.relative}};
  return json;
}

void PrintList(const InspectCommand& o) {
  Json list = Json::array();
  for (const StoredFileEntry& entry : ListStored(SplitPlace(o.file).path)) {
    list.push_back({{"name", entry.name}, {"convention", entry.convention}});
    if (!o.json) Print("%s (%s)\n", Printable(entry.name).c_str(), entry.convention.c_str());
  }
  if (o.json) PrintJson(list, 1);
}

void Run(const InspectCommand& o) {
  if (o.list) return PrintList(o);
  if (!o.error_map.empty() && o.input.place.empty()) {
    throw Error("--error-map", "needs --input: the matrix that was quantized");
  }
  const Dialect* named = DialectOrNothing(o.dialect);
  Findings f;
  f.file = ReadStored(o.file, ReadOptionsOf(o.read, named));
  CheckNamedDialect(f.file, named, o.file);
  const Dialect* dialect = DialectOf(f.file, named);
  f.dialect = dialect == nullptr ? f.file.dialect : std::string(dialect->name);
  const Matrix<float> values = ValuesOf(f.file, dialect, o.file);
  f.statistics = MeasureStored(f.file.matrix, values, o.file);
  f.candidates = ScaleCandidates(f.file.matrix);
  if (!o.input.place.empty()) {
    const NumberFile x = ReadNumbers(o.input);
    f.error = MeasureError(f.file.matrix, x.values.View(), values, o.file);
  }
  if (!o.error_map.empty()) {
    WriteFileAtomically(o.error_map, ErrorMapSvg(f.error->blocks, o.file));
  }
  if (o.json) {
    PrintJson(FindingsJson(f, o.file), 1);
  } else {
    PrintFindings(f, o.file);
  }
}

}  // namespace

void AddInspect(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<InspectCommand>();
  CLI::App* command = app.add_subcommand(
      "inspect",
      "Look at a quantized matrix: layout, scales, errors, and which layouts are possible");
  AddStoredFile(command, "file", &o->file);
  command->add_flag("--list", o->list, "Only list the quantized matrices of the file");
  AddNumberOptions(command, "--input", "The matrix that was quantized, for errors", &o->input);
  command
      ->add_option("--error-map", o->error_map, "Write the relative error of each block as an SVG")
      ->type_name("FILE");
  AddFileDialect(command, &o->dialect);
  AddLayoutOptions(command, "read-", &o->read);
  command->add_flag("--json", o->json, "Print JSON");
  command->footer(
      "Example: a matrix whose scales lie in 128x4 tiles\n"
      "  $ head -c 8192 /dev/zero > x.bf16\n"
      "  $ fp4lab quantize x.bf16 --shape 32x128 --dtype bf16 --scales-order 128x4 --out q.npz > "
      "log\n"
      "  $ fp4lab inspect q.npz | tail -3\n"
      "  scale layouts of this size:\n"
      "    128x4                         768 bytes of padding, all 0  <- as read\n"
      "    padded                        768 bytes of padding, all 0");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
