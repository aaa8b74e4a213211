#include "fp4lab/train/start/named_model.h"

#include <algorithm>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/train/start/checkpoint_model.h"
#include "fp4lab/train/start/presets.h"

namespace fp4lab {
namespace {

// The text at a key of `o`; throws Error for another type.
std::string TextAt(JsonObject* o, const char* key) {
  std::string text;
  o->Read(key, &text);
  if (text.empty()) throw Error(o->Where(key), "must not be empty");
  return text;
}

// A number of the model, 0 for what ReadModelConfig will refuse.
int SizeAt(const Json& model, const char* key) {
  const Json value = model.value(key, Json());
  return value.is_number_integer() && value >= 0 && value <= 1 << 20 ? value.get<int>() : 0;
}

}  // namespace

Json WithNamedModel(const Json& given, const std::string& where) {
  const IeeeArithmetic ieee;
  JsonObject o(given, where);
  const bool preset = o.Has("preset"), from = o.Has("from");
  if (preset && from) throw Error(o.Where("from"), "cannot be combined with \"preset\"");
  if (!preset && !from) return given;
  Json model = preset ? ModelOfPreset(PresetNamed(TextAt(&o, "preset"), o.Where("preset")),
                                      SizeAt(given, "d_model"), SizeAt(given, "sequence"))
                      : ModelOfCheckpoint(TextAt(&o, "from"), o.Where("from"));
  Json others = given;
  others.erase(preset ? "preset" : "from");
  model.update(others, true);
  LeaveOtherPartsAside(others, &model);
  return model;
}

void LeaveOtherPartsAside(const Json& stated, Json* model) {
  const Json parts = model->value("parts", Json::array());
  for (const char* part : {"moe", "mla", "gla"}) {
    const auto names = [&](const Json& list) {
      return std::find(list.begin(), list.end(), part) != list.end();
    };
    const bool has = names(parts) || std::any_of(parts.begin(), parts.end(), [&](const Json& list) {
                       return list.is_array() && names(list);
                     });
    if (!has && !stated.contains(part)) model->erase(part);
  }
}

bool IsNamedModel(const Json& model) { return model.contains("preset") || model.contains("from"); }

std::string ReadStartKey(JsonObject* object) {
  std::string start;
  object->Read("start", &start);
  return start;
}

Json ModelWithStart(JsonObject* object, const std::string& start) {
  const IeeeArithmetic ieee;
  const Json* const given = object->Member("model");
  Json model = given == nullptr ? Json::object() : *given;
  if (model.is_object() && !start.empty()) {
    if (!IsNamedModel(model) && !model.contains("layers")) model["from"] = start;
  }
  return model;
}

}  // namespace fp4lab
