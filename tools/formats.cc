// fp4lab formats: prints the table of narrow formats, or all codes of one format with their values.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/tables_json.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/io/json.h"
#include "tools/help/fitted.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct FormatsOptions {
  std::string values;  // name of the format whose codes to list; empty: the table of formats
  bool json = false, wide = false;
};

std::string Hex(const Format& f, std::uint32_t code) { return HexText(code, DivideUp(f.bits, 4)); }

// Ascending codes as text: "0x7D-0x7F 0xFD-0xFF"; "-" for none.
std::string Ranges(const Format& f, const std::vector<std::uint32_t>& codes) {
  std::string text;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < codes.size() && codes[i + 1] == codes[i] + 1) ++i;
    if (!text.empty()) text += " ";
    text += Hex(f, codes[first]);
    if (i > first) text += "-" + Hex(f, codes[i]);
  }
  return text.empty() ? "-" : text;
}

using FormatCells = std::array<std::string, 10>;

FormatCells CellsOf(const NamedFormat& named) {
  const Format& f = named.format;
  const Json ends = FormatJson(named);
  const auto codes = [&](const char* key) {
    return Ranges(f, ends[key].get<std::vector<std::uint32_t>>());
  };
  const auto number = [&](const char* key) {
    return ends[key].is_null() ? "-" : ShortestText(ends[key].get<float>());
  };
  const std::string fields = std::to_string(f.is_signed ? 1 : 0) + "/" +
                             std::to_string(f.exponent_bits) + "/" +
                             std::to_string(f.mantissa_bits);
  return {std::string(named.name), std::string(named.short_name),
          std::to_string(f.bits),  fields,
          std::to_string(f.bias),  number("max"),
          number("min_normal"),    number("min_subnormal"),
          codes("inf_codes"),      codes("nan_codes")};
}

std::string LineOf(const FormatCells& c) {
  return Formatted("%-15s %-5s %4s  %-7s %4s  %-13s %-13s %-13s %-15s %s\n", c[0].c_str(),
                   c[1].c_str(), c[2].c_str(), c[3].c_str(), c[4].c_str(), c[5].c_str(),
                   c[6].c_str(), c[7].c_str(), c[8].c_str(), c[9].c_str());
}

void PrintFormats(bool wide) {
  std::vector<FormatCells> rows = {{"format", "short", "bits", "s/e/m", "bias", "max", "min normal",
                                    "min subnormal", "Inf", "NaN"}};
  for (const NamedFormat& named : kFormats) rows.push_back(CellsOf(named));
  std::string full;
  TableRows narrow;
  for (const FormatCells& row : rows) {
    full += LineOf(row);
    narrow.push_back({row[0], row[1], row[2], row[3], row[5]});
  }
  PrintFitted(full, narrow, wide, "bias, smallest numbers, codes of Inf and NaN");
}

Json TableAsJson() {
  Json table = Json::array();
  for (const NamedFormat& named : kFormats) table.push_back(FormatJson(named));
  return {{"formats", std::move(table)}};
}

void PrintValues(const NamedFormat& named) {
  const Format& f = named.format;
  for (std::uint32_t code = 0; code < 1u << f.bits; ++code) {
    std::string digits;
    for (int bit = f.bits - 1; bit >= 0; --bit) {
      digits += (code >> bit & 1u) != 0 ? '1' : '0';
      const bool ends_field = bit == f.exponent_bits + f.mantissa_bits || bit == f.mantissa_bits;
      if (ends_field && bit > 0) digits += ' ';
    }
    Print("%s  %s  %s\n", Hex(f, code).c_str(), digits.c_str(),
          ShortestText(Decode(f, code)).c_str());
  }
}

// The value of code c is values[c]. Inf and NaN, which JSON lacks, are strings.
Json ValuesAsJson(const NamedFormat& named) {
  Json values = Json::array();
  for (std::uint32_t code = 0; code < 1u << named.format.bits; ++code) {
    const float value = Decode(named.format, code);
    values.push_back(std::isfinite(value) ? Json(value) : Json(ShortestText(value)));
  }
  return {{"name", named.name}, {"values", std::move(values)}};
}

const NamedFormat& FindOrThrow(const std::string& name) {
  if (const std::optional<FormatId> id = FindFormat(name)) return Named(*id);
  std::vector<std::string> known;
  for (const NamedFormat& f : kFormats) known.emplace_back(f.short_name);
  const std::vector<std::string> full = NamesOf(kFormats);  // as float4_e2m1fn
  if (NearNames(name, known).empty() && !NearNames(name, full).empty()) known = full;
  throw Error("--values " + name, "is not a format; " + DidYouMean(name, known));
}

void Run(const FormatsOptions& options) {
  if (options.values.empty()) {
    options.json ? PrintJson(TableAsJson(), 2) : PrintFormats(options.wide);
    return;
  }
  const NamedFormat& named = FindOrThrow(options.values);
  options.json ? PrintJson(ValuesAsJson(named)) : PrintValues(named);
}

}  // namespace

void AddFormats(CLI::App& app, int* /*exit_code*/) {
  const auto options = std::make_shared<FormatsOptions>();
  CLI::App* command =
      app.add_subcommand("formats", "Print the number formats, or all values of one");
  command->add_option("--values", options->values, "List every code of this format with its value")
      ->type_name("FORMAT");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--wide", options->wide, "Print all columns, however narrow the terminal is");
  command->footer(
      "Example: the last code of E2M1, its sign, exponent and fraction, its value\n"
      "  $ fp4lab formats --values e2m1 | tail -1\n"
      "  0xF  1 11 1  -6");
  command->callback([options] { Run(*options); });
}

}  // namespace fp4lab::tools
