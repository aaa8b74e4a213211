// Small R data files and Debian packages of them, as the corpus manifests describe them.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/base/hash.h"
#include "fp4lab/data/manifest.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/process.h"

namespace fp4lab {

inline std::string BigEndian(std::uint32_t word) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift & 255);
  return bytes;
}

// A character vector as R 3.5 and later serialize it.
inline std::string SerializedLines(const std::vector<std::string>& lines) {
  std::string object = "X\n" + BigEndian(3) + BigEndian(0x40201) + BigEndian(0x30500);
  object += BigEndian(5) + "UTF-8" + BigEndian(16) + BigEndian(std::uint32_t(lines.size()));
  for (const std::string& line : lines) {
    object += BigEndian(0x40009) + BigEndian(std::uint32_t(line.size())) + line;
  }
  return object;
}

inline std::string LazyLoadRecord(const std::string& object) {
  uLongf size = ::compressBound(object.size());
  std::string compressed(size, '\0');
  ::compress(reinterpret_cast<Bytef*>(compressed.data()), &size,
             reinterpret_cast<const Bytef*>(object.data()), object.size());
  return BigEndian(std::uint32_t(object.size())) + compressed.substr(0, size);
}

inline std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Two documents of a few thousand bytes.
inline std::vector<std::vector<std::string>> SmallTexts() {
  std::vector<std::vector<std::string>> texts(2);
  for (int i = 0; i < 100; ++i) {
    texts[0].push_back("line " + std::to_string(i) + " of the first text, to train on");
    texts[1].push_back(i % 10 == 0 ? "" : "validation line " + std::to_string(i * i));
  }
  return texts;
}

inline constexpr const char* kSmallFile = "usr/lib/R/site-library/small/data/Rdata.rdb";

// A manifest for SmallTexts().
inline Json SmallManifest() {
  const auto texts = SmallTexts();
  const std::string first = Joined(texts[0]), second = Joined(texts[1]);
  return {
      {"name", "small"},
      {"title", "two small texts"},
      {"licence", "none"},
      {"package",
       {{"name", "r-cran-small"},
        {"versions", Json::array({{{"version", "1.0-1"}, {"sha256", std::string(64, '0')}}})}}},
      {"extraction", {{"method", "r-rdb"}, {"file", kSmallFile}}},
      {"documents",
       {{{"name", "first"}, {"part", "train"}, {"bytes", first.size()}, {"sha256", Sha256(first)}},
        {{"name", "second"},
         {"part", "validation"},
         {"bytes", second.size()},
         {"sha256", Sha256(second)}}}},
      {"sha256", Sha256(first + second)}};
}

// Builds folder/small.deb, whose kSmallFile has `bytes`.
inline std::filesystem::path BuildPackage(const std::filesystem::path& folder,
                                          const std::string& bytes) {
  WriteFileAtomically(folder / "tree" / kSmallFile, bytes);
  WriteFileAtomically(folder / "tree/DEBIAN/control",
                      std::string_view("Package: r-cran-small\nVersion: 1.0-1\nArchitecture: all\n"
                                       "Maintainer: Nobody <nobody@example.org>\n"
                                       "Description: two small texts\n"));
  const std::filesystem::path package = folder / "small.deb";
  const ProcessResult built = RunProcess(
      {"dpkg-deb", "--root-owner-group", "-b", (folder / "tree").string(), package.string()});
  if (built.exit_code != 0) throw Error("dpkg-deb", built.error);
  return package;
}

inline std::string SmallDatabase() {
  std::string bytes;
  for (const auto& lines : SmallTexts()) bytes += LazyLoadRecord(SerializedLines(lines));
  return bytes;
}

}  // namespace fp4lab
