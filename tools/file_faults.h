// Files that become shorter while they are mapped (io/file_content.h).
#pragma once

namespace fp4lab::tools {

// From here on such a file, or a disk that fails under it, ends the program with one line that
// names the file and exit code 1, instead of the silent SIGBUS.
void NameFilesThatFault();

}  // namespace fp4lab::tools
