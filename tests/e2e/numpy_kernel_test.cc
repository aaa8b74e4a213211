// The Python of lib/fp4lab/judge/README.md, where NumPy is installed.
#include <string>

#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/program.h"
#include "tests/support/python.h"

namespace fp4lab {
namespace {

TEST_CASE("The NumPy kernel and the NumPy reader of the documentation work", "[e2e]") {
  const std::string python = PythonWithNumpy();
  if (python.empty()) return;
  const std::string readme = ReadFile(SourceDirectory() / "lib" / "fp4lab" / "judge" / "README.md");
  const auto block = [&](const std::string& with) {
    const std::size_t inside = readme.find(with);
    REQUIRE(inside != std::string::npos);
    const std::size_t first = readme.rfind("```python\n", inside) + 10;
    return readme.substr(first, readme.find("```", inside) - first);
  };
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "kernel.py", block("b\"fp4lab-answers 1"));
  const std::string kernel = "'" + python + "' '" + (folder / "kernel.py").string() + "'";
  const ProcessResult run = PipeCases("--dialect mxfp4.floor", kernel, "--dialect mxfp4.floor");
  INFO(run.output << run.error);
  CHECK(run.exit_code == 0);

  RunProgram({"cases", "--family", "signs", "--out-dir", folder.path().string()});
  const std::string pack = folder / "golden.safetensors";
  RunProgram({"pack", "--input", (folder / "0000.x.npy").string(), "--out", pack});
  const std::string use = "\npack, metadata = read_pack('" + pack +
                          "')\nassert (pack['codes'] < 16).all() and metadata['block'] == '1x16'\n"
                          "assert pack['scaled'].shape == pack['input'].shape\n";
  WriteFileAtomically(folder / "reader.py", block("def read_pack") + use);
  const ProcessResult reader = RunProcess({python, (folder / "reader.py").string()});
  INFO(reader.error);
  CHECK(reader.exit_code == 0);
}

}  // namespace
}  // namespace fp4lab
