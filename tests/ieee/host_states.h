// Calls of the library under the floating-point states that a host program may have.
//
// A call is a function that takes nothing and returns a value, or throws Error. It runs under every
// state on two SIMD targets, for 1 and 3 threads (TargetsAndThreads). The value's bytes, or the
// error's text, must be those of the plain state, and the state must be the same afterwards. The
// plain state comes last: a table that the library makes at its first use is made in a host's
// state.
#pragma once

#include <algorithm>
#include <cfenv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/json.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"

namespace fp4lab::host {

struct NamedState {
  std::string name;
  FloatingPointState state;
};

// The state of fesetround(rounding), and, where the processor has them, of flushing to zero.
inline std::vector<NamedState> HostStates() {
  const FloatingPointState before = ReadFloatingPointState();
  std::vector<NamedState> states;
  for (const auto& [name, rounding] : {std::pair{"up", FE_UPWARD}, std::pair{"down", FE_DOWNWARD},
                                       std::pair{"toward zero", FE_TOWARDZERO}}) {
    std::fesetround(rounding);
    states.push_back({name, ReadFloatingPointState()});
    WriteFloatingPointState(before);
  }
#if defined(__x86_64__)
  const auto add = [&](const char* name, std::uint32_t set) {
    states.push_back({name, {.vector = 0x1F80 | set, .scalar = 0x037F}});
  };
  add("FTZ", 0x8000);
  add("DAZ", 0x0040);
  add("FTZ and DAZ", 0x8040);
  // Every result that is not exact is a signal, which ends the test: no arithmetic of the library
  // may run in this state.
  states.push_back({"exceptions signal", {.vector = 0x0000, .scalar = 0x0340}});
#elif defined(__aarch64__)
  // Flushing to zero (what -Ofast sets), NaN without payloads, and half precision without
  // infinities. Most processors have no exceptions that signal.
  constexpr std::uint64_t kFz = 1u << 24, kDn = 1u << 25, kAhp = 1u << 26;
  states.push_back({"FZ", {.control = kFz}});
  states.push_back({"DN", {.control = kDn}});
  states.push_back({"FZ and DN", {.control = kFz | kDn}});
  states.push_back({"AHP", {.control = kAhp}});
#endif
  return states;
}

inline bool SameState(const FloatingPointState& a, const FloatingPointState& b) {
#if defined(__x86_64__)
  constexpr std::uint32_t kFlags = 0x3F;
  return (a.vector & ~kFlags) == (b.vector & ~kFlags) && a.scalar == b.scalar;
#elif defined(__aarch64__)
  return a.control == b.control;
#else
  return std::memcmp(&a, &b, sizeof a) == 0;
#endif
}

// ---- The bytes of a value

template <class T>
requires std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> std::string
BytesOf(const T& x) {
  return std::string(reinterpret_cast<const char*>(&x), sizeof x);
}
inline std::string BytesOf(float x) { return std::string(reinterpret_cast<char*>(&x), sizeof x); }
inline std::string BytesOf(double x) { return std::string(reinterpret_cast<char*>(&x), sizeof x); }
inline std::string BytesOf(const std::string& text) { return text; }
inline std::string BytesOf(const Json& json) { return json.dump(); }
inline std::string BytesOf(const Quantized& q);
inline std::string BytesOf(const StoredMatrix& m);
template <class T>
std::string BytesOf(const std::vector<T>& values);
template <class T>
std::string BytesOf(const Matrix<T>& m);
template <class... T>
std::string BytesOf(const std::tuple<T...>& values);
template <class T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes = std::to_string(values.size()) + ":";
  for (const T& x : values) bytes += BytesOf(x);
  return bytes;
}
template <class T>
std::string BytesOf(const Matrix<T>& m) {
  return BytesOf(m.values);
}
template <class... T>
std::string BytesOf(const std::tuple<T...>& values) {
  return std::apply([](const T&... x) { return (BytesOf(x) + ...); }, values);
}
inline std::string BytesOf(const Quantized& q) {
  return BytesOf(std::tuple{q.codes, q.scales, q.amax, q.scale_values});
}
inline std::string BytesOf(const StoredMatrix& m) {
  return BytesOf(std::tuple{m.codes, m.scales, m.tensor_scale});
}

// ---- The table of calls

// Makes the call; the function that it returns gives the bytes, and is for the plain state.
using Bytes = std::function<std::string()>;
struct Call {
  std::string name;
  std::function<Bytes()> make;
};

template <class Function>
Call CallOf(std::string name, Function function) {
  return {std::move(name), [function]() -> Bytes {
            auto value = std::make_shared<decltype(function())>(function());
            return [value] { return BytesOf(*value); };
          }};
}

class SimdTarget {
 public:
  explicit SimdTarget(const std::string& name) : before_(ActiveSimdTarget()) {
    PinSimdTarget(name);
  }
  ~SimdTarget() { PinSimdTarget(before_); }
  SimdTarget(const SimdTarget&) = delete;
  SimdTarget& operator=(const SimdTarget&) = delete;

 private:
  std::string before_;
};

inline std::string BytesUnder(const FloatingPointState& state, const Call& call) {
  const FloatingPointState before = ReadFloatingPointState();
  Bytes bytes;
  std::string error;
  WriteFloatingPointState(state);
  try {
    bytes = call.make();
  } catch (const Error& e) {
    error = e.what();
  } catch (...) {  // a precondition of the library: the test is wrong
    WriteFloatingPointState(before);
    throw;
  }
  const FloatingPointState after = ReadFloatingPointState();
  WriteFloatingPointState(before);
  if (!SameState(after, state)) return "another floating-point state";
  return bytes ? bytes() : "error: " + error;
}

// A SIMD target and a number of threads. Each occurs in one pair; in all pairs for
// FP4LAB_STATES=all.
inline std::vector<std::pair<std::string, int>> TargetsAndThreads() {
  const std::vector<std::string> targets = SimdTargets();
  REQUIRE(targets.size() >= kLeastTargets);
  std::vector<std::pair<std::string, int>> pairs = {{targets.front(), 1}, {targets.back(), 3}};
  if (const char* which = std::getenv("FP4LAB_STATES"); which && std::string_view(which) == "all") {
    pairs.insert(pairs.end(), {{targets.front(), 3}, {targets.back(), 1}});
  }
  return pairs;
}

inline void CheckCalls(const std::vector<Call>& calls) {
  const std::vector<NamedState> states = HostStates();
  const FloatingPointState plain = ReadFloatingPointState();
  REQUIRE(IsIeee(plain));
  const auto pairs = TargetsAndThreads();
  const int threads_before = Threads();
  for (const Call& call : calls) {
    std::map<std::string, std::string> answers;  // the bytes, and the states that gave them
    for (const auto& [target, threads] : pairs) {
      const SimdTarget pinned(target);
      SetThreads(threads);
      for (const NamedState& s : states) {
        answers[BytesUnder(s.state, call)] +=
            "\n  " + s.name + ", " + target + ", threads " + std::to_string(threads);
      }
    }
    SetThreads(threads_before);
    const std::string expected = BytesUnder(plain, call);
    CHECK(!expected.empty());
    answers.erase(expected);
    std::string wrong;
    for (const auto& [bytes, where] : answers) wrong += where;
    INFO(call.name << " has other bytes under" << wrong);
    CHECK(wrong.empty());
  }
}

}  // namespace fp4lab::host
