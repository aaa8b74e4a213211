// Two dumps of named tensors: what differs, where, by how much, and why.
#include "fp4lab/checkpoint/dumps/dumps.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "tests/checkpoint/files.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

SafetensorsTensor Encoded(const char* dtype, std::vector<std::size_t> shape,
                          const std::vector<float>& values) {
  const std::vector<std::byte> bytes = EncodeNumbers(*FindNumberType(dtype), values);
  return {dtype, std::move(shape), ByteArray(bytes.begin(), bytes.end())};
}

struct Dumps {
  TemporaryFolder folder;
  SafetensorsFile first, second;

  DumpReport Compare(const DumpOptions& options = {}) const {
    WriteSafetensors(folder / "a.safetensors", first);
    WriteSafetensors(folder / "b.safetensors", second);
    return CompareDumps(folder / "a.safetensors", folder / "b.safetensors", options);
  }
};

// The one tensor of the dumps, after a change of the second one's values.
DumpedTensor Compared(const std::function<void(Matrix<float>&)>& change, std::size_t rows = 96,
                      std::size_t cols = 64) {
  Dumps d;
  const Matrix<float> x = NormalMatrix(1, rows, cols);
  Matrix<float> y = x;
  change(y);
  d.first.tensors["h"] = NumbersTensor({rows, cols}, x.values);
  d.second.tensors["h"] = NumbersTensor({rows, cols}, y.values);
  const DumpReport report = d.Compare();
  REQUIRE(report.tensors.size() == 1);
  return report.tensors[0];
}

TEST_CASE("Equal dumps are equal, and NaN equals NaN", "[checkpoint]") {
  const DumpedTensor t = Compared([](Matrix<float>&) {});
  CHECK((t.Equal() && t.accepted && t.place.empty() && t.sqnr_db == 999));
  Dumps d;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  d.first.tensors["h"] = d.second.tensors["h"] = NumbersTensor({3}, {nan, 1, -0.0f});
  CHECK(d.Compare().Accepted());
  CHECK(d.Compare().tensors[0].first_nans == 1);
}

TEST_CASE("A difference has its place, extent and size", "[checkpoint]") {
  const DumpedTensor t = Compared([](Matrix<float>& y) {
    for (std::size_t r = 17; r < 20; ++r) {
      for (std::size_t c = 5; c < 9; ++c) y(r, c) += 0.5f;
    }
  });
  CHECK(t.different == 12);
  CHECK(t.place == std::vector<std::size_t>{17, 5});
  CHECK(t.second_got - t.got == Catch::Approx(0.5));
  CHECK((t.first_row == 17 && t.last_row == 19 && t.first_col == 5 && t.last_col == 8));
  CHECK(t.rows_different == 3);
  CHECK(t.max_difference == Catch::Approx(0.5).epsilon(1e-6));
  CHECK(t.cause.empty());
  double signal = 0, noise = 0;
  const Matrix<float> x = NormalMatrix(1, 96, 64);
  for (const float v : x.values) signal += static_cast<double>(v) * static_cast<double>(v);
  noise = 12 * 0.25;
  CHECK(t.sqnr_db == Catch::Approx(10 * std::log10(signal / noise)).epsilon(1e-4));
}

struct CausedBy {
  const char* cause;
  std::function<void(Matrix<float>&)> change;
};

TEST_CASE("The causes of unequal dumps", "[checkpoint]") {
  const auto rounded = [](FormatId format) {
    return [format](Matrix<float>& y) {
      for (float& v : y.values) v = Decode(format, Encode(format, v));
    };
  };
  const auto block_times = [](float factor) {
    return [factor](Matrix<float>& y) {
      for (std::size_t r = 3; r < y.rows; r += 40) {
        for (std::size_t c = 16; c < 32; ++c) y(r, c) *= factor;
      }
    };
  };
  const auto rows_from = [](const std::function<std::size_t(std::size_t)>& from) {
    return [from](Matrix<float>& y) {
      const Matrix<float> x = y;
      for (std::size_t r = 0; r < y.rows; ++r) {
        for (std::size_t c = 0; c < y.cols; ++c) y(r, c) = x(from(r), c);
      }
    };
  };
  const std::vector<CausedBy> causes = {
      {"the second is the first in BF16", rounded(FormatId::kBF16)},
      {"the second is the first in E4M3", rounded(FormatId::kE4M3)},
      {"the first is 0.5 times the second",
       [](Matrix<float>& y) {
         for (float& v : y.values) v *= 2;
       }},
      {"NaN stands in one dump only",
       [](Matrix<float>& y) { y(9, 9) = std::numeric_limits<float>::quiet_NaN(); }},
      {"95 of 96 rows stand 1 later in the second",
       rows_from([](std::size_t r) { return r == 0 ? std::size_t{0} : r - 1; })},
      {"96 of 96 rows stand in another order: row 0 of the second is row 1 of the first",
       rows_from([](std::size_t r) { return r ^ 1; })},
      {"whole blocks of 16 columns differ, 3 of 384, and nothing else", block_times(0.875f)},
  };
  for (const CausedBy& row : causes) {
    CAPTURE(row.cause);
    const DumpedTensor t = Compared(row.change);
    CHECK_FALSE(t.Equal());
    CHECK_THAT(t.cause, ContainsSubstring(row.cause));
  }
  // No cause: one number that BF16 holds is no rounding of all; noise is none either.
  CHECK(Compared([](Matrix<float>& y) {
          y(0, 0) = Decode(FormatId::kBF16, Encode(FormatId::kBF16, y(0, 0)));
        }).cause.empty());
  CHECK(Compared([](Matrix<float>& y) {
          const Matrix<float> n = NormalMatrix(2, y.rows, y.cols, 0.01);
          for (std::size_t i = 0; i < n.values.size(); ++i) y.values[i] += n.values[i];
        }).cause.empty());
}

TEST_CASE("Dumps of other dtypes, shapes and names are paired", "[checkpoint]") {
  Dumps d;
  const std::vector<float> x = {1, -2, 0.5f, 4, 6, -1};
  d.first.tensors["model.layers.10.out"] = Encoded("BF16", {1, 2, 3}, x);
  d.second.tensors["module.layers.10.out"] = Encoded("F32", {2, 3}, x);
  d.first.tensors["layers.2.out"] = Encoded("F16", {2, 3}, x);
  d.second.tensors["layers.2.out"] = Encoded("F8_E4M3", {6, 1}, x);
  d.first.tensors["layers.3.w"] = Encoded("F32", {2, 3}, x);
  d.second.tensors["layers.3.w"] = Encoded("F32", {3, 2}, x);
  d.first.tensors["only"] = Encoded("F32", {1}, {1});
  d.second.tensors["too"] = Encoded("F32", {1}, {1});
  const DumpReport report = d.Compare();
  REQUIRE(report.tensors.size() == 3);
  CHECK(report.tensors[0].name == "layers.2.out");
  CHECK_THAT(report.tensors[0].problem, ContainsSubstring("is 2x3 and 6x1"));
  CHECK(report.tensors[1].problem == "is 2x3 and 3x2: one is transposed");
  CHECK(report.tensors[2].second_name == "module.layers.10.out");
  CHECK(report.tensors[2].Equal());
  CHECK(report.only_first == std::vector<std::string>{"only"});
  CHECK(report.only_second == std::vector<std::string>{"too"});
  CHECK_FALSE(report.Accepted());
  CHECK_THAT(ReportText(report), ContainsSubstring("only in the first (1): only\n") &&
                                     ContainsSubstring("3 tensors, 1 equal, 0 different, 2 not"));
  CHECK(ReportJson(report)["first_different"] == "layers.2.out");
}

TEST_CASE("Names of two engines are paired as a JSON object states", "[checkpoint]") {
  Dumps d;
  const std::vector<float> x = {1, 2, 3, 4};
  for (const int layer : {0, 11}) {
    const std::string number = std::to_string(layer);
    d.first.tensors["decoder.layers." + number + ".mlp.linear_fc2"] = Encoded("F32", {4}, x);
    d.second.tensors["model.layers." + number + ".mlp.down_proj"] = Encoded("F32", {2, 2}, x);
  }
  const auto names = ParseDumpNames(
      ParseJson(R"({"decoder.layers.*.mlp.linear_fc2": "model.layers.*.mlp.down_proj"})", "n"),
      "n");
  CHECK_THROWS_AS(d.Compare(), Error);
  const DumpReport report = d.Compare({.names = names});
  REQUIRE(report.tensors.size() == 2);
  CHECK(report.tensors[1].second_name == "model.layers.11.mlp.down_proj");
  CHECK_THAT(report.tensors[1].problem, ContainsSubstring("is 4 and 2x2"));
  for (const char* wrong : {"[]", R"({"a.*": "b"})", R"({"a": 1})"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(ParseDumpNames(ParseJson(wrong, "n"), "n"), Error);
  }
}

TEST_CASE("A least SQNR accepts noise, but no NaN of one dump", "[checkpoint]") {
  Dumps d;
  const Matrix<float> x = NormalMatrix(1, 32, 32), n = NormalMatrix(2, 32, 32, 0.001);
  Matrix<float> y = x;
  for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] += n.values[i];
  d.first.tensors["a"] = d.first.tensors["b"] = NumbersTensor({32, 32}, x.values);
  d.second.tensors["a"] = NumbersTensor({32, 32}, y.values);
  y.values[3] = std::numeric_limits<float>::quiet_NaN();
  d.second.tensors["b"] = NumbersTensor({32, 32}, y.values);
  const DumpReport report = d.Compare({.least_sqnr_db = 50, .only_equal = false});
  CHECK(report.tensors[0].accepted);
  CHECK_FALSE(report.tensors[1].accepted);
  CHECK_FALSE(d.Compare({.least_sqnr_db = 70, .only_equal = false}).tensors[0].accepted);
  CHECK_THAT(ReportText(report), ContainsSubstring("the first that differs: b\n") &&
                                     ContainsSubstring("1 in one only"));
}

TEST_CASE("A folder of .npy files is a dump; errors are one line", "[checkpoint]") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  std::filesystem::create_directory(folder / "b");
  std::filesystem::create_directory(folder / "c");
  const std::vector<float> x = {1, 2, 3};
  const std::vector<double> y = {1, 2, 3.5};
  const std::vector<std::int64_t> ids = {7, -8};
  WriteNpy(folder / "a/h.npy", MakeNpyArray<float>({3}, x));
  WriteNpy(folder / "b/h.npy", MakeNpyArray<double>({3}, y));
  WriteNpy(folder / "a/ids.npy", MakeNpyArray<std::int64_t>({2}, ids));
  WriteNpy(folder / "b/ids.npy", MakeNpyArray<std::int64_t>({2}, ids));
  const DumpReport report = CompareDumps(folder / "a", folder / "b", {});
  REQUIRE(report.tensors.size() == 2);
  CHECK((report.tensors[0].different == 1 && report.tensors[0].second_got == 3.5));
  CHECK(report.tensors[1].Equal());
  const DumpReport single = CompareDumps(folder / "a/h.npy", folder / "b/h.npy", {});
  CHECK(single.tensors[0].different == 1);
  CHECK_THAT(ErrorOf([&] { CompareDumps(folder / "a", folder / "c", {}); }),
             ContainsSubstring("holds no .safetensors, .npz or .npy file"));
  WriteNpy(folder / "c/x.npy", MakeNpyArray<float>({3}, x));
  CHECK_THAT(ErrorOf([&] { CompareDumps(folder / "a", folder / "c", {}); }),
             ContainsSubstring("has no tensor of a name of"));
  CHECK_THAT(ErrorOf([&] { CompareDumps(folder / "a/h.npy", folder / "a/none.npy", {}); }),
             ContainsSubstring("is not there"));
}

TEST_CASE("A report of dumps is the same for any number of threads", "[checkpoint]") {
  Dumps d;
  const Matrix<float> x = NormalMatrix(1, 3000, 70), n = NormalMatrix(2, 3000, 70, 0.1);
  Matrix<float> y = x;
  for (std::size_t i = 0; i < y.values.size(); i += 7) y.values[i] += n.values[i];
  d.first.tensors["h"] = NumbersTensor({3000, 70}, x.values);
  d.second.tensors["h"] = NumbersTensor({3000, 70}, y.values);
  const int before = Threads();
  std::vector<std::string> reports;
  for (const int threads : {1, 2, 3}) {
    SetThreads(threads);
    reports.push_back(ReportJson(d.Compare())["tensors"].dump());
  }
  SetThreads(before);
  CHECK((reports[0] == reports[1] && reports[0] == reports[2]));
}

}  // namespace
}  // namespace fp4lab
