#include "journal.h"

#include <atomic>
#include <mutex>

namespace fp4lab::handlers {
namespace {

std::mutex mutex;
std::map<std::string, std::int64_t> counts;
std::vector<RecordedCall> records;
std::atomic<bool> recording = false;

}  // namespace

void Count(const std::string& key) {
  const std::lock_guard lock(mutex);
  ++counts[key];
}

std::map<std::string, std::int64_t> Counts() {
  const std::lock_guard lock(mutex);
  return counts;
}

void ClearCounts() {
  const std::lock_guard lock(mutex);
  counts.clear();
}

bool IsRecording() { return recording; }
void SetRecording(bool on) { recording = on; }

void Record(RecordedCall call) {
  const std::lock_guard lock(mutex);
  records.push_back(std::move(call));
}

std::vector<RecordedCall> TakeRecords() {
  const std::lock_guard lock(mutex);
  return std::exchange(records, {});
}

}  // namespace fp4lab::handlers
