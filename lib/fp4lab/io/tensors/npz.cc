// The .npz side of io/tensors/npy.h: arrays in a zip archive.
#include <zip.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fp4lab/io/file.h"
#include "fp4lab/io/memory.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {
namespace {

[[noreturn]] void RefuseArchive(const std::string& where, zip_error_t* error) {
  const std::string reason = zip_error_strerror(error);
  zip_error_fini(error);
  throw Error(where, "cannot be read as .npz: " + reason);
}

constexpr std::size_t kPiece = std::size_t{1} << 20;

std::string MemberName(std::string_view array) { return std::string(array) + ".npy"; }

// One member of an archive, unpacked in pieces.
class Member {
 public:
  Member(zip* archive, const std::string& name, const std::string& where)
      : where_(where), file_(zip_fopen(archive, name.c_str(), 0)) {
    if (file_ == nullptr) throw Error(where, std::string("is damaged: ") + zip_strerror(archive));
    zip_stat_t status;
    zip_stat_init(&status);
    zip_stat(archive, name.c_str(), 0, &status);
    packed_ = (status.valid & ZIP_STAT_COMP_SIZE) != 0 ? status.comp_size : 0;
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() { zip_fclose(file_); }

  // An upper bound of the unpacked size: deflate stores 258 bytes in 2 bits at best.
  std::uint64_t MostBytes() const { return (packed_ + 1) * 1032; }

  // Reads at least kMostNpyHeader bytes, or the whole member if it is shorter.
  std::vector<std::byte> ReadFront() {
    std::vector<std::byte> front;
    while (front.size() < kMostNpyHeader && ReadPiece(&front)) {
    }
    return front;
  }

  // Appends up to kPiece bytes to *content; returns whether there were any.
  bool ReadPiece(std::vector<std::byte>* content) {
    const std::size_t old = content->size();
    content->resize(old + kPiece);
    const zip_int64_t got = zip_fread(file_, content->data() + old, kPiece);
    if (got < 0) throw Error(where_, std::string("is damaged: ") + zip_file_strerror(file_));
    content->resize(old + static_cast<std::size_t>(got));
    return got > 0;
  }

 private:
  const std::string& where_;
  zip_file_t* file_;
  std::uint64_t packed_ = 0;
};

}  // namespace

void NpzFile::Close::operator()(zip* archive) const noexcept { zip_discard(archive); }

NpzFile::NpzFile(const std::filesystem::path& path) : path_(path.string()) {
  file_.emplace(path);
  Open(file_->bytes());
}

NpzFile::NpzFile(std::span<const std::byte> content, std::string where) : path_(std::move(where)) {
  Open(content);
}

void NpzFile::Open(std::span<const std::byte> content) {
  if (content.empty()) throw Error(path_, "cannot be read as .npz: it is empty");
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(content.data(), content.size(), 0, &error);
  if (source == nullptr) RefuseArchive(path_, &error);
  archive_.reset(zip_open_from_source(source, ZIP_RDONLY, &error));
  if (!archive_) {
    zip_source_free(source);
    RefuseArchive(path_, &error);
  }
  zip_error_fini(&error);
}

bool NpzFile::Has(std::string_view name) const {
  return zip_name_locate(archive_.get(), MemberName(name).c_str(), 0) >= 0;
}

std::string NpzFile::Where(std::string_view name) const {
  const std::string where = path_ + "#" + std::string(name);
  if (!Has(name)) throw Error(where, "no such array in the file");
  return where;
}

std::vector<std::string> NpzFile::Names() const {
  std::vector<std::string> names;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive_.get(), 0); ++i) {
    const char* raw = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), 0);
    const std::string_view name = raw == nullptr ? "" : raw;
    RefuseControlCharacters(name, path_);
    if (name.ends_with(".npy")) names.emplace_back(name.substr(0, name.size() - 4));
  }
  return names;
}

NpyArray NpzFile::ReadHeader(std::string_view name) const {
  const std::string where = Where(name);
  Member member(archive_.get(), MemberName(name), where);
  return ParseNpyHeader(member.ReadFront(), where).array;
}

// The header of the array states its size: Read reserves that size once and unpacks little more.
NpyArray NpzFile::Read(std::string_view name) const {
  const std::string where = Where(name);
  Member member(archive_.get(), MemberName(name), where);
  std::vector<std::byte> file = member.ReadFront();
  const std::size_t size = ParseNpyHeader(file, where).file_bytes;
  if (size > member.MostBytes()) {
    throw Error(where, "states " + std::to_string(size) +
                           " bytes, more than its packed bytes can hold: it is damaged");
  }
  RequireMemory(size, where);
  file.reserve(size + kPiece);
  while (file.size() <= size && member.ReadPiece(&file)) {
  }
  NpyArray array = ViewNpy(file, where);
  array.bytes.Keep(std::move(file));
  return array;
}

}  // namespace fp4lab
