#include "fp4lab/data/config.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

void CheckFraction(const JsonObject& object, const DataConfig& config) {
  if (config.validation_fraction > 0 && config.validation_fraction < 1) return;
  throw Error(object.Where("validation_fraction"), "must be between 0 and 1, both excluded");
}

void CheckNotEmpty(const JsonObject& object, std::string_view key, const std::string& value) {
  if (value.empty()) throw Error(object.Where(key), "must not be empty");
}

void ReadTokens(JsonObject& object, DataConfig* config) {
  object.Read("tokens", &config->tokens);
  object.Read("validation_tokens", &config->validation_tokens);
  object.Read("vocabulary", &config->vocabulary);
  CheckNotEmpty(object, "tokens", config->tokens);
  if (config->vocabulary < 0 || config->vocabulary > 65536) {
    throw Error(object.Where("vocabulary"),
                "must be 1 to 65536, or 0 to use the file's largest token + 1");
  }
  if (config->validation_tokens.empty()) {
    object.Read("validation_fraction", &config->validation_fraction);
  } else if (object.Has("validation_fraction")) {
    throw Error(object.Where("validation_fraction"),
                "cannot be combined with \"validation_tokens\"; leave one of them out");
  }
}

void ReadSource(JsonObject& object, DataConfig* config) {
  object.Read("source", &config->source);
  CheckNotEmpty(object, "source", config->source);
  if (config->source != "synthetic") return;
  object.Read("synthetic_seed", &config->synthetic_seed);
  object.Read("synthetic_bytes", &config->synthetic_bytes);
  object.Read("validation_fraction", &config->validation_fraction);
  if (config->synthetic_bytes < 1 || config->synthetic_bytes > std::int64_t{1} << 32) {
    throw Error(object.Where("synthetic_bytes"), "must be from 1 to 4294967296");
  }
}

}  // namespace

DataConfig ReadDataConfig(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  JsonObject object(json, where);
  const int kinds = object.Has("source") + object.Has("text") + object.Has("tokens");
  if (kinds > 1) {
    throw Error(where, "only one of \"source\", \"text\" and \"tokens\" can be the corpus");
  }
  DataConfig config;
  if (object.Member("order_seed") != nullptr) {
    object.Read("order_seed", &config.order_seed.emplace());
  }
  if (object.Has("tokens")) {
    ReadTokens(object, &config);
  } else if (object.Has("text")) {
    object.Read("text", &config.text);
    CheckNotEmpty(object, "text", config.text);
    object.Read("validation_fraction", &config.validation_fraction);
  } else {
    ReadSource(object, &config);
  }
  object.Finish();
  CheckFraction(object, config);
  return config;
}

namespace {

// The members that say which tokens there are.
Json CorpusJson(const DataConfig& config) {
  if (!config.tokens.empty()) {
    Json json{{"tokens", config.tokens}, {"vocabulary", config.vocabulary}};
    if (config.validation_tokens.empty()) {
      json["validation_fraction"] = config.validation_fraction;
    } else {
      json["validation_tokens"] = config.validation_tokens;
    }
    return json;
  }
  if (!config.text.empty()) {
    return {{"text", config.text}, {"validation_fraction", config.validation_fraction}};
  }
  if (config.source != "synthetic") return {{"source", config.source}};
  return {{"source", config.source},
          {"synthetic_seed", config.synthetic_seed},
          {"synthetic_bytes", config.synthetic_bytes},
          {"validation_fraction", config.validation_fraction}};
}

}  // namespace

Json ToJson(const DataConfig& config) {
  const IeeeArithmetic ieee;
  Json json = CorpusJson(config);
  if (config.order_seed) json["order_seed"] = *config.order_seed;
  return json;
}

namespace {

bool IsTextName(const std::string& name) {
  constexpr std::string_view kOther = "._-";
  const auto fits = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOther.find(c) != kOther.npos;
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), fits);
}

}  // namespace

std::vector<ValidationText> ReadValidationTexts(const Json& json, const std::string& where) {
  if (!json.is_object()) throw Error(where, "must be an object: NAME to {\"text\": path}");
  std::vector<ValidationText> texts;
  for (const auto& [name, value] : json.items()) {
    const std::string place = where + "/" + name;
    if (!IsTextName(name)) {
      throw Error(place, "a text's name has 1 to 64 letters, digits and \"._-\"");
    }
    JsonObject object(value, place);
    ValidationText text{.name = name, .text = "", .tokens = ""};
    object.Read("text", &text.text);
    object.Read("tokens", &text.tokens);
    object.Finish();
    if (text.text.empty() == text.tokens.empty()) {
      throw Error(place, "needs one of \"text\" and \"tokens\", the path of a file");
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

Json ToJson(std::span<const ValidationText> texts) {
  Json json = Json::object();
  for (const ValidationText& text : texts) {
    const bool is_text = text.tokens.empty();
    json[text.name] = {{is_text ? "text" : "tokens", is_text ? text.text : text.tokens}};
  }
  return json;
}

}  // namespace fp4lab
