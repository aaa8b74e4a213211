// Reports files that become shorter while they are mapped (io/file_content.h).
#pragma once

namespace fp4lab::tools {

// Installs a handler of SIGBUS for the rest of the process: access to a mapped file that became
// shorter, or whose disk failed, ends the program with one line that names the file, and exit
// code 1.
void NameFilesThatFault();

}  // namespace fp4lab::tools
