#include "fp4lab/train/observe/diagnose.h"

#include <cmath>
#include <set>

#include "fp4lab/base/error.h"
#include "fp4lab/spelling/dialect_json.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TensorStatistics Filled() {
  TensorStatistics tensor{.name = "head.fprop.input", .format = "nvfp4", .values = {}};
  for (std::size_t i = 0; i < Diagnostics().size(); ++i) {
    tensor.values.numbers[i] = 1.0 / (static_cast<double>(i) + 3.0);
  }
  return tensor;
}

TEST_CASE("Every diagnostic is told apart and says what it is", "[train]") {
  std::set<std::string_view> keys, log_keys;
  for (const Diagnostic& d : Diagnostics()) {
    CAPTURE(d.key);
    CHECK(keys.insert(d.key).second);
    CHECK(log_keys.insert(d.log_key).second);
    for (const std::string_view text : {d.key, d.log_key, d.name, d.label, d.definition}) {
      CHECK_FALSE(text.empty());
    }
    CHECK(d.reading.ends_with('.'));
    CHECK((d.figure.empty() || d.figure.ends_with(".svg")));
    CHECK(std::isfinite(d.value(Tally{})));  // of an empty tensor
  }
  for (const char* other : {"name", "format", "step"}) {
    CHECK(keys.count(other) + log_keys.count(other) == 0);
  }
}

TEST_CASE("An operand's numbers come back from JSON with every bit", "[train]") {
  const TensorStatistics tensor = Filled();
  const TensorStatistics again =
      ReadTensorStatistics(Json::parse(ToJson(tensor).dump()), "operand");
  CHECK(again.name == tensor.name);
  CHECK(again.format == tensor.format);
  CHECK(again.values.numbers == tensor.values.numbers);
}

TEST_CASE("What an older file lacks, or has as null, is not measured", "[train]") {
  for (const Diagnostic& d : Diagnostics()) {
    CAPTURE(d.key);
    Json older = ToJson(Filled());
    older.erase(std::string(d.key));
    older["of a newer version"] = 1;
    TensorStatistics read = ReadTensorStatistics(older, "operand");
    CHECK(std::isnan(read.values[d.key]));
    CHECK(ToJson(read).size() == older.size() - 1);  // the missing number is not written
    CHECK_FALSE(LogLine(7, read).contains(std::string(d.log_key)));
    older[std::string(d.key)] = nullptr;
    CHECK(std::isnan(ReadTensorStatistics(older, "operand").values[d.key]));
    older[std::string(d.key)] = "much";
    CHECK_THROWS_AS(ReadTensorStatistics(older, "operand"), Error);
  }
  CHECK_THROWS_AS(ReadTensorStatistics(Json::object(), "operand"), Error);
}

TEST_CASE("A line of the log has the step and Transformer Engine's names", "[train]") {
  const Json line = LogLine(7, Filled());
  CHECK(line.size() == 3 + Diagnostics().size());
  CHECK(line["step"] == 7);
  for (const char* key : {"name", "format", "amax", "underflows%", "clip%", "sqnr"}) {
    CAPTURE(key);
    CHECK(line.contains(key));
  }
}

TEST_CASE("A prescale is part of what an operand stands for", "[train]") {
  const Dialect prescaled = ReadDialect({{"like", "mxfp4.floor"}, {"prescale", 0.75}}, "test");
  const Matrix<float> x(2, 32, 8.0f);  // three quarters of it: 6, a value of E2M1
  CHECK(MeasureQuantization(prescaled, x.View()).values["sqnr_db"] > 100.0);
}

}  // namespace
}  // namespace fp4lab
