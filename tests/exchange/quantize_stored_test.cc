// QuantizeStored gives the bytes of QuantizeAs followed by Store.
#include "fp4lab/exchange/quantize_stored.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "tests/block/cases.h"
#include "tests/exchange/matrices.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

class ThreadsOf {
 public:
  explicit ThreadsOf(int threads) : before_(Threads()) { SetThreads(threads); }
  ThreadsOf(const ThreadsOf&) = delete;
  ThreadsOf& operator=(const ThreadsOf&) = delete;
  ~ThreadsOf() { SetThreads(before_); }

 private:
  int before_;
};

Matrix<float> Elements(Kind kind, std::size_t rows, std::size_t cols) {
  Matrix<float> x(rows, cols);
  const RandomStream stream{.seed = 17};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = TestValue(kind, stream, i, i / cols);
  }
  return x;
}

// Compares the tensor scales by their bits, since an amax may be NaN.
bool SameBytes(StoredMatrix a, StoredMatrix b) {
  const auto same = [](float p, float q) {
    return std::bit_cast<std::uint32_t>(p) == std::bit_cast<std::uint32_t>(q);
  };
  const bool numbers = std::equal(a.tensor_scale.begin(), a.tensor_scale.end(),
                                  b.tensor_scale.begin(), b.tensor_scale.end(), same);
  a.tensor_scale.clear();
  b.tensor_scale.clear();
  return numbers && a == b;
}

// Whether the bytes of one and of three threads are those of Store(QuantizeAs).
bool IsRight(const Dialect& d, MatrixView<const float> x, const DialectOptions& options,
             const StorageLayout& layout) {
  const StoredMatrix right = Store(d, QuantizeAs(d, x, options), layout);
  for (const int threads : {1, 3}) {
    const ThreadsOf scope(threads);
    if (!SameBytes(QuantizeStored(d, x, options, layout), right)) return false;
  }
  return true;
}

DialectOptions GivenBits(const Dialect& d, std::size_t elements,
                         std::vector<std::uint16_t>* random) {
  if (!IsStochastic(d)) return {};
  random->resize(elements);
  FillBits16({.seed = 5}, 0, *random);
  return {.random = *random};
}

TEST_CASE("Every dialect's stored bytes are those of its codes, in every layout", "[exchange]") {
  for (const Dialect& d : Dialects()) {
    for (const Kind kind : {Kind::kNormal, Kind::kAnyBits}) {
      const Matrix<float> x = Elements(kind, 37, 83);  // no whole blocks, odd rows
      std::vector<std::uint16_t> random;
      const DialectOptions options = GivenBits(d, x.values.size(), &random);
      for (const StorageLayout& layout : Layouts(d)) {
        CAPTURE(d.name, static_cast<int>(kind), Name(layout.codes), Named(layout.scales).name,
                layout.transposed, layout.expanded_scales);
        CHECK(IsRight(d, x.View(), options, layout));
      }
    }
  }
}

TEST_CASE("A matrix of several stripes has the bytes of the whole, for any number of threads",
          "[exchange]") {
  // A stripe has 2^18 elements, or one band of blocks: each shape has several stripes, the last one
  // shorter.
  struct Shape {
    std::size_t rows, cols;
  };
  for (const Shape& shape : {Shape{1043, 1001}, Shape{67, 40003}}) {
    const Matrix<float> x = NormalMatrix(3, shape.rows, shape.cols);
    for (const char* name : {"nvfp4.te", "nvfp4.te.2d", "nvfp4.modelopt", "mxfp4.floor"}) {
      for (const CodeOrder codes :
           {CodeOrder::kLowFirst, CodeOrder::kHighFirst, CodeOrder::kSplitHalves}) {
        CAPTURE(name, shape.cols, Name(codes));
        CHECK(IsRight(*FindDialect(name), x.View(), {}, {.codes = codes}));
      }
      CHECK(IsRight(*FindDialect(name), x.View(), {}, {.scales = ScaleOrder::k128x4}));
    }
    Dialect rows = *FindDialect("nvfp4.te");
    rows.row_scaled = true;
    CHECK(IsRight(rows, x.View(), {}, {}));
    CHECK(IsRight(*FindDialect("nvfp4.te"), x.View(), {.amax = {1.5f}}, {}));
    const Matrix<float> turned = NormalMatrix(4, shape.cols, shape.rows);
    CHECK(IsRight(*FindDialect("nvfp4.te"), turned.View().Transposed(), {}, {}));
  }
}

TEST_CASE("Random bits belong to elements of the whole matrix, whatever the stripe", "[exchange]") {
  const Matrix<float> x = NormalMatrix(6, 1043, 1001);
  Dialect d = *FindDialect("nvfp4.te");
  d.rounding = ElementRounding::kStochastic16;
  std::vector<std::uint16_t> random;
  const DialectOptions given = GivenBits(d, x.values.size(), &random);
  CHECK(IsRight(d, x.View(), given, {}));
  const RandomStream stream{.seed = 5};
  for (const NamedGenerator& g : kRandomGenerators) {
    CAPTURE(g.name);
    Dialect fed = d;
    if (!Feeds(g.generator, d)) fed.rounding = ElementRounding::kStochastic8;
    CHECK(IsRight(fed, x.View(), {.source = RandomSource{stream, g.generator}}, {}));
  }
  CHECK(QuantizeStored(d, x.View(), given, {}) ==
        QuantizeStored(d, x.View(), {.source = RandomSource{stream}}, {}));
}

TEST_CASE("QuantizeStored handles empty matrices and unfit layouts as Store does", "[exchange]") {
  const Dialect& d = *FindDialect("nvfp4.te");
  for (const Matrix<float>& x : {Matrix<float>(0, 32), Matrix<float>(4, 0)}) {
    CHECK(IsRight(d, x.View(), {}, {}));
  }
  const Matrix<float> x = NormalMatrix(1, 4, 32);
  const StorageLayout six_bits{.codes = CodeOrder::kDense6};
  CHECK(ErrorOf([&] { QuantizeStored(d, x.View(), {}, six_bits); }) ==
        ErrorOf([&] { Store(d, QuantizeAs(d, x.View()), six_bits); }));
}

TEST_CASE("CheckStored refuses what Convert refuses, in the same words", "[exchange]") {
  for (const Dialect& d : BlockShapes()) {
    for (const StorageLayout& layout : Layouts(d)) {
      CAPTURE(d.name, Name(layout.codes), Named(layout.scales).name, layout.transposed,
              layout.expanded_scales);
      const StoredMatrix good = Store(d, AnyQuantized(d, 33, 70), layout);
      std::vector<StoredMatrix> all(5, good);
      all[1].codes.pop_back();
      all[2].scales.push_back(0);
      all[3].codes.front() = 0xFF;  // no code of 4 or 6 bits in an order of one code a byte
      all[4].tensor_scale = {1, 2};
      if (layout.expanded_scales && !good.scales.empty()) {
        all.push_back(good);
        all.back().scales.front() ^= 1;
      }
      for (const StoredMatrix& m : all) {
        CHECK(ErrorOf([&] { CheckStored(m, "f"); }) ==
              ErrorOf([&] { Convert(m, m.layout, 1.0f, "f"); }));
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab
