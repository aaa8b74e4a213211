#include "fp4lab/judge/products/gemm_probe.h"

#include <string>

#include "fp4lab/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

ProbeReading ReadingOf(const char* operands, const Accumulation& accumulation) {
  const ProbeSet set = MakeProbes(operands);
  return ReadProbes(set, ProbeAnswers(set, accumulation));
}
ProbeReading ReadingOf(const char* operands, const char* name) {
  return ReadingOf(operands, *FindAccumulation(name));
}

// A tensor core that no row of the table describes.
ProbeReading ReadingOf(const char* operands, const TensorCoreModel& model) {
  Accumulation accumulation = *FindAccumulation("blackwell.mxf4.f32");
  accumulation.model = &model;
  return ReadingOf(operands, accumulation);
}

TEST_CASE("Probes read back the parameters of every model that they apply to", "[judge]") {
  for (const std::string_view operands : kProbeOperands) {
    const ProbeSet set = MakeProbes(operands);
    std::size_t read = 0;
    for (const Accumulation& accumulation : Accumulations()) {
      if (accumulation.model == nullptr || !WhyNot(accumulation, set.a, set.b).empty()) continue;
      const TensorCoreModel& model = *accumulation.model;
      if (model.output == MmaOutput::kNearest16) continue;  // B is no binary16 number
      if (set.a.IsScaled() && model.scheme != MmaScheme::kScaledGroups) continue;  // steps < 48
      INFO(operands << " " << model.name);
      const ProbeReading r = ReadProbes(set, ProbeAnswers(set, accumulation));
      if (r.fraction_bits_or_more) {
        CHECK(model.fraction_bits >= *r.fraction_bits);
      } else {
        CHECK(r.fraction_bits == model.fraction_bits);
        CHECK(r.alignment == "toward zero");
      }
      if (model.fraction_bits >= 25) CHECK(r.output == "toward zero");
      if (model.scheme == MmaScheme::kFp8InFp16) {
        CHECK(r.step == 0);
      } else {
        CHECK(r.step == model.products);
      }
      if (operands == "bf16") CHECK(r.floor == model.floor);
      ++read;
    }
    CHECK(read >= 1);
  }
}

TEST_CASE("Probes tell 34, 35, 36 and 37 fraction bits of an FP4 tensor core apart", "[judge]") {
  for (const int bits : {34, 35, 36, 37}) {
    TensorCoreModel model = *FindTensorCoreModel("blackwell.mxf4.f32");
    model.fraction_bits = bits;
    INFO(bits);
    const ProbeReading mx = ReadingOf("mxfp4", model);
    CHECK(mx.fraction_bits == bits);
    CHECK(!mx.fraction_bits_or_more);
    CHECK(mx.floor == model.floor);
    // The range of NVFP4's scales ends 36 bits below the largest.
    const ProbeReading nv = ReadingOf("nvfp4", model);
    CHECK(nv.fraction_bits == std::min(bits, 36));
    CHECK(nv.fraction_bits_or_more == (bits >= 36));
  }
}

TEST_CASE("Probes tell the readings of mxf4's groups apart", "[judge]") {
  for (const char* operands : {"nvfp4", "mxfp4"}) {
    const ProbeSet set = MakeProbes(operands);
    for (const bool cancelled : {false, true}) {
      for (const bool zero : {false, true}) {
        Matrix<float> d(set.a.rows, set.b.rows);
        TensorCoreGemm(*FindTensorCoreModel("blackwell.mxf4.f32"), set.a, set.b,
                       {.open = {.cancelled_group_counts = cancelled, .zero_group_counts = zero}},
                       d.View());
        std::vector<float> answers;
        for (std::size_t i = 0; i < d.rows; ++i) answers.push_back(d(i, i));
        const ProbeReading r = ReadProbes(set, answers);
        CHECK(r.cancelled_group_counts == cancelled);
        CHECK(r.zero_group_counts == zero);
      }
    }
  }
}

TEST_CASE("Probes see that binary32 adds one product after the other, to nearest", "[judge]") {
  const ProbeReading r = ReadingOf("bf16", "fp32-sequential");
  CHECK(r.step == 2);  // after B - B nothing is left that could hide a later element
  CHECK(r.fraction_bits_or_more);
  CHECK(r.output == "nearest");
  CHECK(ReadingOf("bf16", "exact").output == "nearest");
}

TEST_CASE("Probes read the directions of rounding from the answers", "[judge]") {
  const ProbeSet set = MakeProbes("bf16");
  std::vector<float> answers = ProbeAnswers(set, *FindAccumulation("hopper.f16.f32"));
  const auto answer = [&](const std::string& name) -> float& {
    for (std::size_t i = 0; i < set.probes.size(); ++i) {
      if (NameOf(set.probes[i]) == name) return answers[i];
    }
    throw Error(name, "no such probe");
  };
  CHECK(answer("align:25") == 0x1p-25f);
  CHECK(answer("align:26") == 0.0f);
  answer("align-down:25") = -0x1p-24f;
  answer("round:-") = -0x1.000002p0f;
  const ProbeReading down = ReadProbes(set, answers);
  CHECK(down.alignment == "down");
  CHECK(down.output == "down");
  answer("align-up:25") = 0x1p-24f;
  answer("round:+") = 0x1.000002p0f;
  const ProbeReading nearest = ReadProbes(set, answers);
  CHECK(nearest.alignment == "nearest");
  CHECK(nearest.output == "nearest");
  answer("align:12") = 0.0f;  // makes no sense: no reading
  CHECK(!ReadProbes(set, answers).fraction_bits.has_value());
}

TEST_CASE("Probes of unknown operands are refused with the ones that there are", "[judge]") {
  CHECK(ErrorOf([] { MakeProbes("fp3"); }) ==
        "probes of fp3: are not available; use one of: nvfp4 mxfp4 e4m3 bf16");
}

}  // namespace
}  // namespace fp4lab
