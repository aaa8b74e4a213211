#include "fp4lab/io/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "fp4lab/base/error.h"

namespace fp4lab {

TemporaryFolder::TemporaryFolder() {
  std::error_code status;
  const auto parent = std::filesystem::temp_directory_path(status);
  std::string name = (parent / "fp4lab-XXXXXX").string();
  if (status || ::mkdtemp(name.data()) == nullptr) {
    const std::string reason = status ? status.message() : std::strerror(errno);
    throw Error(name,
                "cannot be created: " + reason + "; set TMPDIR to a folder that you can write to");
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace fp4lab
