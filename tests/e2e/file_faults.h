// Faults of files and kernels, and what the program says of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "tests/checkpoint/files.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {

using Bytes = std::vector<std::uint8_t>;
inline constexpr TensorScaleConvention kMultiplier = TensorScaleConvention::kMultiplier;

struct Files {
  TemporaryFolder folder;
  SafetensorsFile file;

  std::string Path(const std::string& name) const { return folder / name; }
  void Number(const std::string& name, const Matrix<float>& x) const {
    WriteNpy(Path(name), MakeNpyArray<float>({x.rows, x.cols}, x.values));
  }
  void Array(const std::string& name, std::vector<std::size_t> shape, const Bytes& bytes) const {
    WriteNpy(Path(name), MakeNpyArray<std::uint8_t>(std::move(shape), bytes));
  }
  void NumberArray(const std::string& name, const std::vector<float>& numbers) const {
    WriteNpy(Path(name), MakeNpyArray<float>({numbers.size()}, numbers));
  }
  // x.npy, codes.npy and scales.npy.
  void Kernel(const Matrix<float>& x, const StoredMatrix& m) const {
    Number("x.npy", x);
    Array("codes.npy", {m.codes.size()}, m.codes);
    Array("scales.npy", {m.scales.size()}, m.scales);
  }
  ProcessResult Run(std::vector<std::string> arguments) const {
    return RunProgram(arguments, {.folder = folder.path()});
  }
};

// Bytes of a 64x128 matrix in ModelOpt's NVFP4.
struct Weight {
  Matrix<float> x = Weights(1, 64, 128);
  StoredMatrix m = Quantize("nvfp4.modelopt", x, {.tensor_scale = kMultiplier});
  SafetensorsTensor codes() const { return TensorOf("U8", {64, 64}, m.codes); }
  SafetensorsTensor scales() const { return TensorOf("F8_E4M3", {64, 8}, m.scales); }
  SafetensorsTensor number() const { return NumbersTensor({}, m.tensor_scale); }
};

// A fault: what it writes and runs, and what the output must and must not have.
struct Fault {
  const char* name;
  std::function<std::vector<std::string>(Files&)> make;  // the command's arguments
  int exit_code;
  std::vector<std::string> has = {}, lacks = {};
};

inline void CheckFaults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    CAPTURE(fault.name);
    Files files;
    const std::vector<std::string> arguments = fault.make(files);
    if (!files.file.tensors.empty()) WriteSafetensors(files.Path("w.safetensors"), files.file);
    const ProcessResult run = files.Run(arguments);
    const std::string text = run.output + run.error;
    CAPTURE(text);
    CHECK(run.exit_code == fault.exit_code);
    for (const std::string& part : fault.has)
      CHECK_THAT(text, Catch::Matchers::ContainsSubstring(part));
    for (const std::string& part : fault.lacks)
      CHECK_THAT(text, !Catch::Matchers::ContainsSubstring(part));
    if (!run.error.empty()) CHECK(IsOneLine(run.error));
  }
}

}  // namespace fp4lab
