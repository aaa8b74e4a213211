// Errors about files that are not there, with the names that are near.
#pragma once

#include <filesystem>
#include <string>

namespace fp4lab {

// `; did you mean "x.npy"?`: the files beside `path`, which does not exist, whose names are near
// its own, at most three. Empty if there are none, or if the folder cannot be listed. Only the
// first 10,000 names of a folder are looked at.
std::string NearFilesText(const std::filesystem::path& path);

// Throws Error(path, "cannot be read: REASON") with the system's reason for `error`, a value of
// errno, and with NearFilesText where there is no such file.
[[noreturn]] void CannotRead(const std::filesystem::path& path, int error);

}  // namespace fp4lab
