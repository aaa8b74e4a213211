// The tables of the library as JSON, and recipes.
#include <algorithm>
#include <span>

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/tables_json.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/io/json.h"
#include "fp4lab/recipe/published_recipes.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/spelling/dialect_json.h"
#include "fp4lab/tensor/accumulation.h"

namespace fp4lab::python {
namespace {

std::string FormatTable() {
  Json rows = Json::array();
  for (const NamedFormat& named : kFormats) rows.push_back(FormatJson(named));
  return rows.dump();
}

// DialectJson, with the fields that spell the dialect out as "formula"; "tensor_scale" is whether
// there is one.
Json DialectRow(const Dialect& d) {
  Json json = DialectJson(d);
  json["tensor_scale"] = json.at("has_tensor_scale");
  json["formula"] = DialectFields(d);
  return json;
}

std::string DialectTable() {
  Json rows = Json::array();
  for (const Dialect& d : Dialects()) rows.push_back(DialectRow(d));
  return rows.dump();
}

std::string AccumulationTable() {
  Json rows = Json::array();
  for (const Accumulation& a : Accumulations()) {
    rows.push_back({{"name", a.name}, {"what", a.what}, {"evidence", a.evidence}});
  }
  return rows.dump();
}

std::vector<std::string> AllRecipeNames() {
  std::vector<std::string> names = RecipeNames();
  for (const PublishedRecipe& r : PublishedRecipes()) {
    if (std::find(names.begin(), names.end(), r.name) == names.end()) names.emplace_back(r.name);
  }
  return names;
}

FormatId RequireFormat(const std::string& name) {
  if (const auto id = FindFormat(name)) return *id;
  throw Error("format",
              "\"" + name + "\" is not in the table; " + DidYouMean(name, NamesOf(kFormats)));
}

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Codes as uint32, whatever the format's width.
nb::object EncodeArray(const std::string& name, const Floats& x, bool saturate) {
  const FormatId format = RequireFormat(name);
  std::vector<std::uint32_t> codes(x.size());
  {
    const nb::gil_scoped_release release;
    Encode(format, std::span(x.data(), x.size()), std::span<std::uint32_t>(codes),
           {.overflow = saturate ? Overflow::kSaturate : Overflow::kSpecial});
  }
  return ArrayOf(std::move(codes), {x.size()});
}

nb::object DecodeArray(const std::string& name, const Words32& codes) {
  const FormatId format = RequireFormat(name);
  std::vector<float> values(codes.size());
  {
    const nb::gil_scoped_release release;
    Decode(format, std::span(codes.data(), codes.size()), std::span<float>(values));
  }
  return ArrayOf(std::move(values), {codes.size()});
}

}  // namespace

void BindTables(Bindings& m) {
  m.def("formats", &FormatTable);
  m.def("encode", &EncodeArray, nb::arg("format"), nb::arg("x").noconvert(), nb::arg("saturate"));
  m.def("decode", &DecodeArray, nb::arg("format"), nb::arg("codes").noconvert());
  m.def("dialects", &DialectTable);
  m.def("find_dialect", [](const std::string& name) { return RequireDialect(name).name; });
  m.def("dialect_row",
        [](const std::string& name) { return DialectRow(RequireDialect(name)).dump(); });
  m.def("accumulations", &AccumulationTable);
  m.def("recipes", &AllRecipeNames);
  m.def("recipe", [](const std::string& json) {
    return ToJson(ReadRecipe(ParseJson(json, "recipe"), "recipe")).dump();
  });
}

}  // namespace fp4lab::python
