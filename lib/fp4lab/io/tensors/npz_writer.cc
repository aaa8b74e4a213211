#include <zip.h>

#include <memory>
#include <new>
#include <utility>

#include "fp4lab/io/file.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {
namespace {

// A zip archive that grows in memory.
class MemoryArchive {
 public:
  MemoryArchive() {
    zip_error_t error;
    zip_error_init(&error);
    source_ = zip_source_buffer_create(nullptr, 0, 0, &error);
    archive_ = source_ == nullptr ? nullptr : zip_open_from_source(source_, ZIP_TRUNCATE, &error);
    zip_error_fini(&error);
    if (archive_ == nullptr) {
      zip_source_free(source_);
      throw std::bad_alloc();
    }
    zip_source_keep(source_);
  }
  MemoryArchive(const MemoryArchive&) = delete;
  MemoryArchive& operator=(const MemoryArchive&) = delete;
  ~MemoryArchive() {
    if (archive_ != nullptr) zip_discard(archive_);
    zip_source_free(source_);
  }

  // `content` must live until Close.
  void Add(const std::string& name, std::span<const std::byte> content, bool deflate) {
    zip_source_t* data = zip_source_buffer(archive_, content.data(), content.size(), 0);
    const zip_int64_t added = zip_file_add(archive_, name.c_str(), data, ZIP_FL_ENC_UTF_8);
    if (added < 0) zip_source_free(data);
    Require(added >= 0, "an array's name that a zip archive can hold");
    const auto index = static_cast<zip_uint64_t>(added);
    zip_set_file_compression(archive_, index, deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    zip_file_set_dostime(archive_, index, 0, 0x21, 0);  // 1980-01-01, as NumPy does
    zip_file_set_external_attributes(archive_, index, 0, ZIP_OPSYS_UNIX, 0600u << 16);
  }

  std::vector<std::byte> Close() {
    Require(zip_close(archive_) == 0, "an archive that can be finished");
    archive_ = nullptr;
    Expects(zip_source_open(source_) == 0, "an archive that can be read back");
    zip_source_seek(source_, 0, SEEK_END);
    std::vector<std::byte> bytes(static_cast<std::size_t>(zip_source_tell(source_)));
    zip_source_seek(source_, 0, SEEK_SET);
    const zip_int64_t got = zip_source_read(source_, bytes.data(), bytes.size());
    zip_source_close(source_);
    Expects(got == static_cast<zip_int64_t>(bytes.size()), "an archive that is read whole");
    return bytes;
  }

 private:
  // Throws std::bad_alloc if libzip had no memory; any other failure is a bug.
  void Require(bool done, const char* what) const {
    const bool no_memory = zip_error_code_zip(zip_get_error(archive_)) == ZIP_ER_MEMORY;
    if (!done && no_memory) throw std::bad_alloc();
    Expects(done, what);
  }

  zip_source_t* source_;
  zip_t* archive_;
};

}  // namespace

std::vector<std::byte> FormatNpz(const std::map<std::string, NpyArray>& arrays, bool deflate) {
  std::vector<std::vector<std::byte>> contents;
  contents.reserve(arrays.size());
  MemoryArchive archive;
  for (const auto& [name, array] : arrays) {
    contents.push_back(FormatNpy(array));
    archive.Add(name + ".npy", contents.back(), deflate);
  }
  return archive.Close();
}

void WriteNpz(const std::filesystem::path& path, const std::map<std::string, NpyArray>& arrays,
              bool deflate) {
  WriteFileAtomically(path, FormatNpz(arrays, deflate));
}

}  // namespace fp4lab
