// A folder in which a test runs commands of the program fp4lab.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"

namespace fp4lab {

struct Answer {
  int code;
  std::string text;  // of stdout and stderr
};

class CommandFolder {
 public:
  Answer Run(const std::vector<std::string>& arguments) const {
    Child child(arguments, folder_ / "output.txt");
    const int code = child.Wait();
    return {code, child.Output()};
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string File(const std::string& name, const std::string& text) const {
    WriteFileAtomically(folder_ / name, text);
    return Path(name);
  }

 private:
  TemporaryFolder folder_;
};

// The command failed with one line on stderr, which has `part`.
inline void CheckOneLine(const Answer& answer, const std::string& part) {
  CHECK(answer.code == 1);
  CHECK_THAT(answer.text, Catch::Matchers::ContainsSubstring(part));
  CHECK(answer.text.find("error: ") == 0);
  CHECK(answer.text.find('\n') == answer.text.size() - 1);
}

}  // namespace fp4lab
