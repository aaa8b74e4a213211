// XLA's buffers as the library's matrices, and errors at the border.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "environment.h"
#include "fp4lab/base/error.h"
#include "fp4lab/te/quantize.h"
#include "journal.h"
#include "xla/ffi/api/ffi.h"

namespace fp4lab::handlers {

namespace ffi = ::xla::ffi;
using Buffer = ffi::AnyBuffer;
using Result = ffi::Result<ffi::AnyBuffer>;

// Dimensions of a buffer that is folded to two at `axis` (negative: from the end).
struct Folded {
  std::size_t rows = 1, cols = 1;
};
Folded Fold(const Buffer& buffer, std::int64_t axis);

std::string_view DtypeName(ffi::DataType type);
// "(256, 128)".
std::string ShapeText(const Buffer& buffer);
// Bytes of the data: two FP4 codes share one.
std::size_t DataBytes(const Buffer& buffer);

inline std::uint8_t* BytesOf(const Buffer& buffer) {
  return static_cast<std::uint8_t*>(buffer.untyped_data());
}
inline float* FloatsOf(const Buffer& buffer) { return static_cast<float*>(buffer.untyped_data()); }
inline std::uint16_t* WordsOf(const Buffer& buffer) {
  return static_cast<std::uint16_t*>(buffer.untyped_data());
}

// The only number of a binary32 buffer.
float ScalarOf(const Buffer& buffer, std::string_view name);

RecordedBuffer Copy(std::string_view name, const Buffer& buffer);

// Runs a handler's body; what it throws becomes an error of the call, one line that names the call.
template <class Body>
ffi::Error Guard(std::string_view op, const Body& body) noexcept {
  try {
    const HandlerEnvironment environment;
    body();
    return ffi::Error::Success();
  } catch (const std::exception& e) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                      std::string("fp4lab: ") + std::string(op) + ": " + e.what());
  } catch (...) {
    return ffi::Error(ffi::ErrorCode::kInternal, "fp4lab: an unknown exception");
  }
}

// Bad arguments of a call: a line that says what is wrong and what would be right.
class CallError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
inline void Demand(bool condition, const std::string& text) {
  if (!condition) throw CallError(text);
}

// Transformer Engine's JAXX_Scaling_Mode and JAXX_Quantize_Layout.
enum class ScalingMode : std::int64_t { kNone, kDelayed, kMxfp8, kCurrent, kNvfp4, kNvfp4Square };
enum class QuantizeLayout : std::int64_t { kRowwise, kColwise, kBoth };
std::string_view NameOf(ScalingMode mode);

}  // namespace fp4lab::handlers
