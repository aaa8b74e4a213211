#include "fp4lab/io/json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"

namespace fp4lab {
namespace {

std::string Escaped(std::string_view key) {  // RFC 6901
  std::string text;
  for (const char c : Printable(key)) {
    text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return text;
}

[[noreturn]] void WrongType(const std::string& where, std::string_view wanted, const Json& json) {
  std::string seen = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (seen.size() > 40) seen = seen.substr(0, 37) + "...";
  throw Error(where, "must be " + std::string(wanted) + ", not " + seen);
}

}  // namespace

template <class Integer>
Integer WholeNumber(const Json& json, const std::string& where) {
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
template int WholeNumber(const Json& json, const std::string& where);
template std::int64_t WholeNumber(const Json& json, const std::string& where);
template std::uint64_t WholeNumber(const Json& json, const std::string& where);

namespace {

template <class T>
T Convert(const Json& json, const std::string& where) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) WrongType(where, "true or false", json);
    return json.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    return WholeNumber<T>(json, where);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!json.is_number()) WrongType(where, "a number", json);
    const auto value = json.get<double>();
    if (std::abs(value) > static_cast<double>(std::numeric_limits<T>::max())) {
      WrongType(where, "a number that binary32 holds (up to 3.4e38)", json);
    }
    return static_cast<T>(value);
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

// The handler of nlohmann's SAX parser: reports every key and tracks its place in the document.
class Walker {
 public:
  Walker(std::string_view where, const JsonKeyVisitor& visit) : where_(where), visit_(visit) {}

  bool null() { return Element(); }
  bool boolean(bool) { return Element(); }
  bool number_integer(Json::number_integer_t) { return Element(); }
  bool number_unsigned(Json::number_unsigned_t) { return Element(); }
  bool number_float(Json::number_float_t, const std::string&) { return Element(); }
  bool string(std::string&) { return Element(); }
  bool binary(Json::binary_t&) { return Element(); }
  bool start_object(std::size_t) { return Begin(false); }
  bool end_object() { return End(); }
  bool start_array(std::size_t) { return Begin(true); }
  bool end_array() { return End(); }
  bool key(const std::string& name) {
    Open& object = open_.back();
    const bool repeated = !object.keys.insert(name).second;
    object.key = name;
    if (visit_) visit_(name, repeated, [this] { return Place(); });
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) { return false; }

 private:
  // An object or array whose end has not been reached.
  struct Open {
    bool is_array = false;
    std::size_t elements = 0;         // of an array: elements begun so far
    std::set<std::string> keys = {};  // of an object: keys seen so far
    std::string key = {};             // the last key seen
  };

  bool Element() {
    if (!open_.empty() && open_.back().is_array) ++open_.back().elements;
    return true;
  }
  bool Begin(bool is_array) {
    Element();
    open_.push_back({.is_array = is_array});
    if (open_.size() > static_cast<std::size_t>(kMaxJsonDepth)) {
      throw Error(where_, "JSON nested too deep");
    }
    return true;
  }
  bool End() {
    open_.pop_back();
    return true;
  }
  // The place of the innermost object.
  std::string Place() const {
    std::string pointer;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const Open& o = open_[i];
      pointer += "/" + (o.is_array ? std::to_string(o.elements - 1) : Escaped(o.key));
    }
    return std::string(where_) + (pointer.empty() ? "" : "#" + pointer);
  }

  std::string_view where_;
  const JsonKeyVisitor& visit_;
  std::vector<Open> open_;
};

}  // namespace

std::string ProblemOf(const Json::exception& error) {
  const std::string text = error.what();  // "[json.exception.type_error.302] type must be ..."
  const std::size_t end = text.find("] ");
  return end == text.npos ? text : text.substr(end + 2);
}

void WalkJson(std::string_view text, std::string_view where, const JsonKeyVisitor& visit) {
  const IeeeArithmetic ieee;
  Walker walker(where, visit);
  Json::sax_parse(text.begin(), text.end(), &walker);
}

Json ParseJson(std::string_view text, std::string_view where) {
  const IeeeArithmetic ieee;
  WalkJson(text, where, [](const std::string& key, bool repeated, const JsonPlace& place) {
    if (repeated) {
      throw Error(place(), "has the key \"" + Escaped(key) + "\" twice; keep one of them");
    }
  });
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    const std::size_t end = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const std::string_view before = text.substr(0, end);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = newline == before.npos ? end + 1 : end - newline;
    std::string problem = ProblemOf(e);  // "parse error at ...: syntax error ..."
    const std::size_t colon = problem.find(": ");
    if (colon != problem.npos) problem = problem.substr(colon + 2);
    std::replace(problem.begin(), problem.end(), '\n', ' ');
    throw Error(where, "line " + std::to_string(line) + ", column " + std::to_string(column) +
                           ": not JSON: " + problem);
  } catch (const Json::out_of_range& e) {  // 1e999; the exception states no position
    throw Error(where, "not JSON: " + ProblemOf(e));
  }
}

Json ReadJsonFile(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
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
    throw Error(
        Where(key),
        "unknown key; " + DidYouMean(key, names, "the keys here are: " + Joined(names, ", ")));
  }
}

template <class T>
void JsonObject::Read(std::string_view key, T* out) {
  const IeeeArithmetic ieee;
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
template void JsonObject::Read(std::string_view, std::vector<std::vector<std::string>>*);

}  // namespace fp4lab
