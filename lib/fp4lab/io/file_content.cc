#include "fp4lab/io/file_content.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"

namespace fp4lab {

FileContent::FileContent(const std::filesystem::path& path) {
  const OpenFile file(path);
  const std::size_t size = file.MappableBytes();
  if (size == 0) {
    file.ReadAll([this](std::span<const std::byte> piece) {
      own_.insert(own_.end(), piece.begin(), piece.end());
    });
    bytes_ = own_;
    return;
  }
  void* const mapping =
      ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file.descriptor(), 0);
  if (mapping == MAP_FAILED) {
    throw Error(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  }
  bytes_ = {static_cast<const std::byte*>(mapping), size};
}

void FileContent::Populate(std::span<const std::byte> part) const {
  if (!own_.empty() || part.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGE_SIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = RoundUp(reinterpret_cast<std::uintptr_t>(part.data() + part.size()), page);
#ifdef MADV_POPULATE_READ
  if (::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ) == 0) return;
#endif
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void FileContent::Forget(std::span<const std::byte> part) const {
  if (!own_.empty() || part.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGE_SIZE));
  const auto begin = RoundUp(reinterpret_cast<std::uintptr_t>(part.data()), page);
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / page * page;
  if (begin >= end) return;
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // the pages are clean
}

FileContent::~FileContent() {
  if (own_.empty() && !bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace fp4lab
