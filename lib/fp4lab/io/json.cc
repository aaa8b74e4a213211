#include "fp4lab/io/json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "fp4lab/base/suggest.h"
#include "fp4lab/io/file.h"

namespace fp4lab {
namespace {

std::string Escaped(std::string_view key) {  // RFC 6901
  std::string text;
  for (const char c : key) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    text += c == '~' ? "~0" : c == '/' ? "~1" : control ? "?" : std::string(1, c);
  }
  return text;
}

[[noreturn]] void WrongType(const std::string& where, std::string_view wanted, const Json& json) {
  std::string seen = json.dump();
  if (seen.size() > 40) seen = seen.substr(0, 37) + "...";
  throw Error(where, "must be " + std::string(wanted) + ", not " + seen);
}

template <class Integer>
Integer AsInteger(const Json& json, const std::string& where) {
  const char* wanted = std::is_signed_v<Integer> ? "a whole number" : "a whole number from 0";
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<Integer>::max())) {
      return static_cast<Integer>(value);
    }
  } else if (json.is_number_integer()) {
    const auto value = json.get<std::int64_t>();
    if (value >= static_cast<std::int64_t>(std::numeric_limits<Integer>::min()) &&
        (value < 0 || static_cast<std::uint64_t>(value) <=
                          static_cast<std::uint64_t>(std::numeric_limits<Integer>::max()))) {
      return static_cast<Integer>(value);  // a Json built in C++ may hold a signed 5
    }
  } else if (json.is_number_float()) {  // 4e6
    const double value = json.get<double>();
    if (value == std::floor(value) && std::abs(value) < 0x1p53 &&
        value <= static_cast<double>(std::numeric_limits<Integer>::max()) &&
        value >= static_cast<double>(std::numeric_limits<Integer>::min())) {
      return static_cast<Integer>(value);
    }
  }
  WrongType(where, wanted, json);
}

template <class T>
T Convert(const Json& json, const std::string& where) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) WrongType(where, "true or false", json);
    return json.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    return AsInteger<T>(json, where);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!json.is_number()) WrongType(where, "a number", json);
    return json.get<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) WrongType(where, "a string", json);
    return json.get<std::string>();
  } else {
    if (!json.is_array()) WrongType(where, "an array", json);
    T values;
    for (std::size_t i = 0; i < json.size(); ++i) {
      values.push_back(Convert<typename T::value_type>(json[i], where + "/" + std::to_string(i)));
    }
    return values;
  }
}

}  // namespace

Json ParseJson(std::string_view text, std::string_view where) {
  const auto check = [where](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxJsonDepth) throw Error(where, "JSON nested too deep");
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& e) {
    const std::size_t end = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const std::string_view before = text.substr(0, end);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = newline == before.npos ? end + 1 : end - newline;
    std::string problem = e.what();  // "[json.exception...] parse error at ...: syntax error ..."
    const std::size_t colon = problem.find(": ");
    if (colon != problem.npos) problem = problem.substr(colon + 2);
    std::replace(problem.begin(), problem.end(), '\n', ' ');
    throw Error(where, "line " + std::to_string(line) + ", column " + std::to_string(column) +
                           ": not JSON: " + problem);
  } catch (const Json::out_of_range& e) {  // 1e999; it does not say where
    const std::string problem = e.what();
    throw Error(where,
                "not JSON: " + problem.substr(std::min(problem.find("] ") + 2, problem.size())));
  }
}

Json ReadJsonFile(const std::filesystem::path& path) {
  return ParseJson(ReadFile(path), path.string());
}

JsonObject::JsonObject(const Json& json, std::string where)
    : json_(json), where_(std::move(where)) {
  if (!json.is_object()) WrongType(where_, "an object", json);
}

bool JsonObject::Has(std::string_view key) const { return json_.contains(std::string(key)); }

std::string JsonObject::Where(std::string_view key) const {
  return where_ + (where_.find('#') == where_.npos ? "#/" : "/") + Escaped(key);
}

const Json* JsonObject::Member(std::string_view key) {
  known_.emplace(key);
  const auto found = json_.find(std::string(key));
  return found == json_.end() ? nullptr : &*found;
}

void JsonObject::Finish() const {
  for (const auto& [key, value] : json_.items()) {
    if (known_.contains(key)) continue;
    const std::vector<std::string> names(known_.begin(), known_.end());
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    throw Error(Where(key), "unknown key; " + DidYouMean(key, names, "the keys here are: " + all));
  }
}

template <class T>
void JsonObject::Read(std::string_view key, T* out) {
  if (const Json* member = Member(key)) *out = Convert<T>(*member, Where(key));
}

template void JsonObject::Read(std::string_view, bool*);
template void JsonObject::Read(std::string_view, int*);
template void JsonObject::Read(std::string_view, std::int64_t*);
template void JsonObject::Read(std::string_view, std::uint64_t*);
template void JsonObject::Read(std::string_view, float*);
template void JsonObject::Read(std::string_view, double*);
template void JsonObject::Read(std::string_view, std::string*);
template void JsonObject::Read(std::string_view, std::vector<std::int64_t>*);
template void JsonObject::Read(std::string_view, std::vector<std::uint64_t>*);
template void JsonObject::Read(std::string_view, std::vector<double>*);
template void JsonObject::Read(std::string_view, std::vector<std::string>*);

}  // namespace fp4lab
