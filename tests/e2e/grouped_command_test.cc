// verify grouped-gemm and verify attention: exit codes, places and causes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/quantize_stored.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/judge/attention/attention.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Playground {
  TemporaryFolder folder;
  std::string Path(const std::string& name) const { return (folder / name).string(); }
};

ProcessResult Verify(const char* kind, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"verify", kind});
  return RunProgram(arguments);
}

// Numbers of BF16 with few bits.
Matrix<float> Small(std::size_t rows, std::size_t cols, std::uint64_t seed) {
  const RandomStream random{.seed = seed};
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = 0.125f * (static_cast<float>(random.Bits32(i) >> 27) - 16.0f);
  }
  return x;
}

void Write3d(const std::string& path, const std::vector<std::size_t>& shape,
             const Matrix<float>& x) {
  WriteNpy(path, MakeNpyArray<float>(shape, x.values));
}

TEST_CASE("verify grouped-gemm names the group, the rectangle and the cause", "[tools]") {
  const Playground f;
  // Groups of 3, 0 and 2 rows, padded to 4; weights 3 x (4, 16).
  Matrix<float> a = Small(8, 16, 1), b = Small(12, 16, 2), d(8, 4);
  const std::size_t group_of[] = {0, 0, 0, 9, 2, 2, 9, 9};
  const float alphas[] = {1.0f, 2.0f, 0.5f};
  const auto product = [&](std::size_t shift) {
    for (std::size_t m = 0; m < 8; ++m) {
      for (std::size_t n = 0; n < 4 && group_of[m] < 9; ++n) {
        const std::size_t g = (group_of[m] + shift) % 3;
        double sum = 0;
        for (std::size_t k = 0; k < 16; ++k) sum += a(m, k) * b(4 * g + n, k);
        d(m, n) = static_cast<float>(sum * alphas[group_of[m]]);
      }
    }
    WriteMatrix(f.Path("d.npy"), d.View());
  };
  WriteMatrix(f.Path("a.npy"), a.View());
  Write3d(f.Path("b.npy"), {3, 4, 16}, b);
  const auto verify = [&](std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {f.Path("a.npy"), f.Path("b.npy"), f.Path("d.npy"),
                                          "--operand",     "bf16",          "--alphas",
                                          "1,2,0.5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Verify("grouped-gemm", arguments);
  };
  const std::vector<std::string> sizes = {"--sizes", "3,0,2", "--pad", "4"};
  product(0);
  ProcessResult run = verify(sizes);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("equal, 2 groups with rows, 1 without"));
  CHECK(verify({"--ends", "4,4,8", "--sizes", "3,0,2"}).exit_code == 0);

  product(1);
  run = verify(sizes);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output, ContainsSubstring("(weights-of-next-group)"));

  product(0);
  for (const std::size_t n : {1u, 2u}) d(5, n) += 8.0f;
  WriteMatrix(f.Path("d.npy"), d.View());
  run = verify(sizes);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output, ContainsSubstring("group 2, rows 4..5: outside, 2 of 8 elements") &&
                             ContainsSubstring("outside in row 1, columns 1..2 only: all 2"));
  const Json json = ParseJson(verify({"--sizes", "3,0,2", "--pad", "4", "--json"}).output, "json");
  CHECK(json["verdict"] == "outside");
  CHECK(json["empty_groups"] == 1);
  CHECK(json["groups"][1]["group"] == 2);
  CHECK(json["groups"][1]["outside_in"] ==
        Json({{"row", 1}, {"column", 1}, {"rows", 1}, {"columns", 2}}));

  product(0);
  d(3, 0) = 1.0f;
  WriteMatrix(f.Path("d.npy"), d.View());
  run = verify(sizes);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output, ContainsSubstring("padding: 1 elements are not zero, the first in row 3"));

  const auto refused = [&](const std::vector<std::string>& more) {
    const ProcessResult r = verify(more);
    CHECK(r.exit_code == 2);
    CHECK(IsOneLine(r.error));
    return r.error;
  };
  CHECK_THAT(refused({}), ContainsSubstring("--sizes must say"));
  CHECK_THAT(refused({"--sizes", "3,0,2"}), ContainsSubstring("--pad says"));
  CHECK_THAT(refused({"--ends", "4,3,8"}), ContainsSubstring("group 1 ends at row 3"));
  CHECK_THAT(refused({"--ends", "4,x,8"}), ContainsSubstring("\"x\" is not a number"));
  CHECK_THAT(refused({"--ends", "4,8"}), ContainsSubstring("3 alphas for 2 groups"));
  CHECK_THAT(refused({"--ends", "1.5,4,8"}), ContainsSubstring("whole number"));
}

TEST_CASE("verify attention judges numbers and an NVFP4 cache, and names causes", "[tools]") {
  const Playground f;
  AttentionInputs in{.heads = 4,
                     .kv_heads = 2,
                     .q = Small(4 * 6, 32, 3),
                     .k = Small(2 * 24, 32, 4),
                     .v = Small(2 * 24, 32, 5),
                     .causal = true};
  Write3d(f.Path("q.npy"), {4, 6, 32}, in.q);
  Write3d(f.Path("k.npy"), {2, 24, 32}, in.k);
  Write3d(f.Path("v.npy"), {2, 24, 32}, in.v);
  const auto verify = [&](const char* scheme, const Matrix<float>& o,
                          std::vector<std::string> more = {}) {
    Write3d(f.Path("o.npy"), {4, 6, 32}, o);
    std::vector<std::string> arguments = {f.Path("q.npy"), f.Path("k.npy"), f.Path("v.npy"),
                                          f.Path("o.npy"), "--scheme",      scheme};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Verify("attention", arguments);
  };
  for (const AttentionScheme& scheme : AttentionSchemes()) {
    CAPTURE(scheme.name);
    const Matrix<float> o = EvaluateAttention(PlanOf(in, scheme)).answer;
    const ProcessResult right = verify(std::string(scheme.name).c_str(), o, {"--causal"});
    CHECK(right.exit_code == 0);
    CHECK_THAT(right.output, ContainsSubstring(": equal, 0 of 768 elements"));
    const ProcessResult wrong = verify(std::string(scheme.name).c_str(), o, {});
    CHECK(wrong.exit_code == 1);
    CHECK_THAT(wrong.output, ContainsSubstring("outside in 4 of 4 heads"));
  }

  // The cache as a quantized file, and a kernel whose heads share K and V otherwise.
  const Dialect& te = *FindDialect("nvfp4.te");
  constexpr StorageLayout kAmax{.tensor_scale = TensorScaleConvention::kAmax};
  const auto cache = [&](const char* name, const Matrix<float>& x) {
    WriteStored(f.Path(name), QuantizeStored(te, x.View(), {}, kAmax), te.name, "fp4lab", 448.0f);
    return f.Path(name);
  };
  // Both heads have one amax in a file: the heads of `in` get it from a common largest number.
  AttentionInputs even = in;
  for (Matrix<float>* x : {&even.k, &even.v}) (*x)(0, 0) = (*x)(24, 0) = 4.0f;
  AttentionPlan plan = PlanOf(even, RequireAttentionScheme("nvfp4-kv", "test"));
  const std::string k = cache("k.safetensors", even.k), v = cache("v.safetensors", even.v);
  const auto verify_cache = [&](const Matrix<float>& o) {
    Write3d(f.Path("o.npy"), {4, 6, 32}, o);
    return Verify("attention", {f.Path("q.npy"), k, v, f.Path("o.npy"), "--scheme", "nvfp4-kv",
                                "--kv-heads", "2", "--causal"});
  };
  const ProcessResult right = verify_cache(EvaluateAttention(plan).answer);
  CHECK(right.exit_code == 0);
  INFO(right.output << right.error);
  std::swap(plan.kv_of[1], plan.kv_of[2]);  // 0, 1, 0, 1
  const ProcessResult wrong = verify_cache(EvaluateAttention(plan).answer);
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.output, ContainsSubstring("outside in 2 of 4 heads, the first 1") &&
                               ContainsSubstring("(kv-heads-interleaved)"));

  // TensorRT-LLM's order of V's scales: four keys in turn under every scale.
  const Matrix<float> answer =
      EvaluateAttention(PlanOf(even, RequireAttentionScheme("nvfp4-kv", "test"))).answer;
  StoredMatrix turned = QuantizeStored(te, even.v.View(), {}, kAmax);
  const std::vector<std::uint8_t> linear = turned.scales;
  for (std::size_t r = 0; r < 48; ++r) {
    for (std::size_t c = 0; c < 2; ++c)
      turned.scales[r / 4 * 8 + c * 4 + r % 4] = linear[r * 2 + c];
  }
  WriteStored(f.Path("v_turned.safetensors"), turned, te.name, "fp4lab", 448.0f);
  Write3d(f.Path("o.npy"), {4, 6, 32}, answer);
  const auto verify_turned = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {f.Path("q.npy"),
                                          k,
                                          f.Path("v_turned.safetensors"),
                                          f.Path("o.npy"),
                                          "--scheme",
                                          "nvfp4-kv",
                                          "--causal",
                                          "--kv-heads",
                                          "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Verify("attention", arguments);
  };
  CHECK(verify_turned({"--v-scales-bytes", "trtllm-v"}).exit_code == 0);
  WriteFileAtomically(f.Path("own.json"),
                      std::string(R"({"reshape": ["R/4", 4, "C"], "transpose": [0, 2, 1]})"));
  CHECK(verify_turned({"--v-scales-bytes", f.Path("own.json")}).exit_code == 0);
  const ProcessResult as_linear = verify_turned({});
  CHECK(as_linear.exit_code == 1);
  CHECK_THAT(as_linear.output, ContainsSubstring("(v-scales-linear-as-trtllm)"));

  const auto refused = [](const ProcessResult& r) {
    CHECK(r.exit_code == 2);
    CHECK(IsOneLine(r.error));
    return r.error;
  };
  const Matrix<float> o(24, 32);
  CHECK_THAT(refused(verify_turned({"--v-scales-bytes", "trtlm-v"})),
             ContainsSubstring("did you mean \"trtllm-v\"?"));
  CHECK_THAT(refused(verify("bf16", o, {"--v-scales-bytes", "trtllm-v"})),
             ContainsSubstring("has no block scales"));
  CHECK_THAT(refused(verify("sageattention", o)), ContainsSubstring("sageattention3"));
  CHECK_THAT(refused(verify("bf16", o, {"--heads", "5"})), ContainsSubstring("5 heads of Q"));
  CHECK_THAT(refused(Verify("attention", {f.Path("q.npy"), k, v, f.Path("o.npy"), "--scheme",
                                          "sageattention3", "--kv-heads", "2"})),
             ContainsSubstring("give plain numbers"));
  CHECK_THAT(refused(Verify("attention", {f.Path("q.npy")})), ContainsSubstring("four files"));
  CHECK_THAT(RunProgram({"verify", "attention", "--schemes"}).output,
             ContainsSubstring("attn-qat.one-level"));
}

TEST_CASE("verify --cases of grouped products and attention passes right kernels alone",
          "[tools]") {
  const Playground f;
  for (const char* kind : {"grouped-gemm", "attention"}) {
    const std::string folder = f.Path(kind);
    REQUIRE(RunProgram({"cases", kind, "--out-dir", folder}).exit_code == 0);
    CHECK_THAT(Verify(kind, {"--cases", folder}).error, ContainsSubstring("has no answer"));
    REQUIRE(RunProgram({"cases", kind, "--answer", folder}).exit_code == 0);
    CHECK(Verify(kind, {"--cases", folder}).exit_code == 0);
  }
  REQUIRE(RunProgram({"cases", "attention", "--answer", f.Path("attention"), "--deviation",
                      "sums-in-bf16"})
              .exit_code == 0);
  const ProcessResult wrong = Verify("attention", {"--cases", f.Path("attention"), "--json"});
  CHECK(wrong.exit_code == 1);
  const Json json = ParseJson(wrong.output, "json");
  REQUIRE(json["causes"].size() == 1);
  CHECK(json["causes"][0]["name"] == "sums-in-bf16");
  CHECK(RunProgram({"cases", "attention", "--deviation", "mask-missing"}).exit_code != 0);
}

}  // namespace
}  // namespace fp4lab
