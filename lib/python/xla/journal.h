// The journal of handler calls: how often each kind of call ran, and on request the buffers
// themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fp4lab::handlers {

// A buffer as XLA handed it over: data are packed (two FP4 codes a byte).
struct RecordedBuffer {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

struct RecordedCall {
  std::string op;
  std::map<std::string, std::int64_t> attributes;
  std::vector<RecordedBuffer> buffers;
};

// Counts a call under `key`, a text like "te_gemm_v2_ffi scaling=nvfp4 (256, 128) x (384, 128)".
void Count(const std::string& key);
std::map<std::string, std::int64_t> Counts();
void ClearCounts();

// Whether handlers keep the buffers of their calls.
bool IsRecording();
void SetRecording(bool recording);
void Record(RecordedCall call);
// The calls recorded so far, in the order in which they ended; the list is then empty.
std::vector<RecordedCall> TakeRecords();

}  // namespace fp4lab::handlers
