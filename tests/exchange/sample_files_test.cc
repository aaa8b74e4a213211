// Files that independent programs wrote (sample_files.py: NumPy, no code of fp4lab) are read to the
// values that those programs state.
#include <algorithm>
#include <bit>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/process.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/python.h"

namespace fp4lab {
namespace {

struct Sample {
  const char* file;
  const char* convention;
  const char* name;
  TensorScaleConvention tensor_scale;
};
const Sample kSamples[] = {
    {"te.safetensors", "te", "fc1.weight", TensorScaleConvention::kAmax},
    {"modelopt.safetensors", "modelopt", "model.layers.0.mlp.up_proj",
     TensorScaleConvention::kMultiplier},
    {"comfyui.safetensors", "comfyui", "blocks.0.q", TensorScaleConvention::kMultiplier},
    {"comfyui-metadata.safetensors", "comfyui", "blocks.0.q", TensorScaleConvention::kMultiplier},
    {"compressed-tensors.safetensors", "compressed-tensors", "lin",
     TensorScaleConvention::kDivisor},
    {"compressed-tensors-mxfp4.safetensors", "compressed-tensors", "lin",
     TensorScaleConvention::kNone},
    {"ggml-nvfp4.gguf", "gguf", "blk.0.ffn_up.weight", TensorScaleConvention::kMultiplier},
    {"ggml-mxfp4.gguf", "gguf", "blk.0.ffn_up.weight", TensorScaleConvention::kNone},
    {"ggml-experts.gguf", "gguf", "blk.0.ffn_up_exps.weight", TensorScaleConvention::kMultiplier},
};

// False where there is no Python with NumPy.
bool WriteSamples(const TemporaryFolder& folder) {
  const std::string python = PythonWithNumpy();
  if (python.empty()) return false;
  const std::string script = (SourceDirectory() / "tests/exchange/sample_files.py").string();
  const ProcessResult run = RunProcess({python, script, folder.path().string()});
  INFO(run.error);
  REQUIRE(run.exit_code == 0);
  return true;
}

TEST_CASE("Sample files of other programs decode to the values stored beside them", "[exchange]") {
  const TemporaryFolder folder;
  if (!WriteSamples(folder)) return;
  for (const Sample& sample : kSamples) {
    CAPTURE(sample.file);
    const std::string path = (folder / sample.file).string();
    const StoredFile file = ReadStored(path);
    CHECK(file.entry == StoredFileEntry{sample.name, sample.convention});
    CHECK(file.matrix.layout.tensor_scale == sample.tensor_scale);
    const std::string stem = path.substr(0, path.rfind('.'));
    const Matrix<float> expected = ReadMatrix(stem + ".values.npy").values;
    const Matrix<float> values = StoredValues(file.matrix, 448.0f, path);
    REQUIRE((values.rows == 6 && values.cols == 192));
    std::size_t different = 0;
    for (std::size_t i = 0; i < values.values.size(); ++i) {
      different += std::bit_cast<std::uint32_t>(values.values[i]) !=
                   std::bit_cast<std::uint32_t>(expected.values[i]);
    }
    CHECK(different == 0);
  }
}

TEST_CASE("Samples go through every convention without a change of codes and scales",
          "[exchange]") {
  const TemporaryFolder folder;
  if (!WriteSamples(folder)) return;
  for (const Sample& sample : kSamples) {
    const StoredMatrix matrix = ReadStored((folder / sample.file).string()).matrix;
    for (const std::string_view convention : Conventions()) {
      if (convention == "gguf" && matrix.tensor_scale.size() > 1) continue;
      if (convention == "comfyui" && matrix.block_cols == 32) continue;  // has no MXFP4
      CAPTURE(sample.file, convention);
      const std::string place = (folder / (convention == "gguf" ? "x.gguf" : "x.npz")).string();
      WriteStored(place, matrix, "", convention, 448.0f);
      ReadStoredOptions options;
      const StoredMatrix read = ReadStored(place, options).matrix;
      StorageLayout plain;
      plain.tensor_scale = TensorScaleConvention::kNone;
      StoredMatrix a = Convert(matrix, plain, 448.0f, "a"), b = Convert(read, plain, 448.0f, "b");
      CHECK(a == b);
    }
  }
}

}  // namespace
}  // namespace fp4lab
