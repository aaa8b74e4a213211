// The counters of Transformer Engine's kernels: the library maps an element to its random word; the
// tests run the kernels' own loops over threads and iterations and record the elements of each
// word.
#include "fp4lab/quantize/te_counters.h"

#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/formats/stochastic_verdict.h"
#include "fp4lab/quantize/replay.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Key = std::tuple<bool, std::size_t, std::size_t>;  // columnwise, row, column
using Words = std::map<Key, TeWord>;

// The words of a launch, found by a walk over its threads. A word serves four elements from (row,
// col) on, along a row or a column.
struct Walk {
  const TeLaunch& launch;
  Words words;
  std::size_t twice = 0;

  void Serve(bool columnwise, std::size_t row, std::size_t col, std::size_t subsequence,
             std::size_t n) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::size_t r = columnwise ? row + i : row, c = columnwise ? col : col + i;
      if (r >= launch.rows || c >= launch.cols) continue;  // the kernel draws and drops these
      const TeWord word{subsequence, static_cast<std::uint32_t>(n), i};
      twice += !words.emplace(Key{columnwise, r, c}, word).second;
    }
  }
};

void WalkTuned(Walk* walk, std::size_t by, std::size_t bx, std::size_t gx) {
  const TeLaunch& launch = walk->launch;
  const std::size_t per_stage = launch.columnwise ? 16 : 8;
  for (std::size_t t = 0; t < 128; ++t) {
    const std::size_t lane = t % 32, warp = t / 32, sub = t + 128 * bx + 128 * by * gx;
    for (std::size_t s = 0; s < 4; ++s) {
      const std::size_t row0 = 128 * by + 64 * (s / 2), col0 = 128 * bx + 64 * (s % 2);
      std::size_t n = per_stage * s;
      for (std::size_t it = 0; it < 2; ++it) {
        for (std::size_t w = 0; w < 2; ++w) {
          for (std::size_t h = 0; h < 2; ++h, ++n) {
            const std::size_t col = col0 + 16 * (t % 4) + 8 * ((w + lane / 16) % 2) + 4 * h;
            walk->Serve(false, row0 + t / 4 + 32 * it, col, sub, n);
          }
        }
      }
      for (std::size_t w = 0; w < 2 && launch.columnwise; ++w) {
        for (std::size_t e = 0; e < 2; ++e) {
          for (std::size_t h = 0; h < 2; ++h, ++n) {
            const std::size_t row = row0 + 16 * ((lane / 2 + warp) % 4) + 8 * e + 4 * h;
            walk->Serve(true, row, col0 + 2 * lane + w, sub, n);
          }
        }
      }
    }
  }
}

void WalkOpt2d(Walk* walk, std::size_t by, std::size_t bx, std::size_t gx) {
  const TeLaunch& launch = walk->launch;
  for (std::size_t t = 0; t < 128; ++t) {
    const std::size_t lane = t % 32, sub = t + 128 * bx + 128 * by * gx;
    std::size_t n = 0;
    for (std::size_t s = 0; s < 4; ++s) {
      const std::size_t row0 = 128 * by + 32 * s;
      for (std::size_t it = 0; it < 2 && launch.columnwise; ++it) {
        for (std::size_t e = 0; e < 4; ++e) {
          walk->Serve(true, row0 + 16 * it + 4 * e, 128 * bx + t, sub, n++);
        }
      }
      for (std::size_t it = 0; it < 2 && launch.rowwise; ++it) {
        for (std::size_t w = 0; w < 2; ++w) {
          for (std::size_t e = 0; e < 2; ++e) {
            const std::size_t col = 128 * bx + 16 * (t % 8) + 8 * ((w + lane / 16) % 2) + 4 * e;
            walk->Serve(false, row0 + t / 8 + 16 * it, col, sub, n++);
          }
        }
      }
    }
  }
}

void WalkGeneric(Walk* walk, std::size_t by, std::size_t bx, std::size_t gx) {
  const TeLaunch& launch = walk->launch;
  for (std::size_t t = 0; t < 256; ++t) {
    const std::size_t sub = t + 256 * bx + 256 * by * gx;
    std::size_t n = 0;
    for (std::size_t iter = 0; iter < 4 && launch.rowwise; ++iter) {
      for (std::size_t k = 0; k < 4; ++k) {
        walk->Serve(false, 128 * by + t / 8 + 32 * iter, 128 * bx + 16 * (t % 8) + 4 * k, sub, n++);
      }
    }
    for (std::size_t iter = 0; iter < 2 && launch.columnwise; ++iter) {
      for (std::size_t m = 0; m < 2; ++m) {
        for (std::size_t k = 0; k < 4; ++k) {
          const std::size_t col = 128 * bx + 2 * (t / 8 + 32 * iter) + m;
          walk->Serve(true, 128 * by + 16 * (t % 8) + 4 * k, col, sub, n++);
        }
      }
    }
  }
}

// One tile of 128 features (mi) by up to 1024 tokens (ni).
void WalkHadamard(Walk* walk, std::size_t ni, std::size_t mi, std::size_t feature_tiles) {
  const TeLaunch& launch = walk->launch;
  const std::size_t kt = std::min<std::size_t>((launch.rows + 127) / 128, 8);
  const std::size_t tile = mi + ni * feature_tiles;
  for (std::size_t k = 0; k < kt; ++k) {
    const std::size_t token0 = 1024 * ni + 128 * k;
    for (std::size_t t = 0; t < 128 && launch.columnwise; ++t) {
      const std::size_t sub = 128 + t + 512 * k + 512 * kt * tile;
      for (std::size_t v = 0; v < 8; ++v) {
        for (std::size_t h = 0; h < 4; ++h) {
          walk->Serve(true, token0 + 16 * v + 4 * h, 128 * mi + t, sub, 4 * v + h);
        }
      }
    }
    for (std::size_t t = 0; t < 256 && launch.rowwise; ++t) {
      const std::size_t sub = 256 + t + 512 * (k + 1) + 512 * kt * tile;
      for (std::size_t v = 0; v < 4; ++v) {
        for (std::size_t h = 0; h < 4; ++h) {
          const std::size_t col = 128 * mi + 64 * (t % 2) + 16 * v + 4 * h;
          walk->Serve(false, token0 + t / 2, col, sub, 4 * v + h);
        }
      }
    }
  }
}

// One tile of 128 features (mi) by up to 512 tokens, the tile of matrices below 1024 rows or
// columns: slices of 64 tokens, a thread a feature, a block of words for 16 tokens.
void WalkHadamardColumns(Walk* walk, std::size_t ni, std::size_t mi, std::size_t feature_tiles) {
  const std::size_t slices = (std::min<std::size_t>(walk->launch.rows, 512) + 63) / 64;
  const std::size_t tile = mi + ni * feature_tiles;
  for (std::size_t k = 0; k < slices; ++k) {
    for (std::size_t t = 0; t < 128; ++t) {
      for (std::size_t v = 0; v < 4; ++v) {
        for (std::size_t h = 0; h < 4; ++h) {
          walk->Serve(true, 512 * ni + 64 * k + 16 * v + 4 * h, 128 * mi + t,
                      t + 256 * k + 256 * slices * tile, 4 * v + h);
        }
      }
    }
  }
}

Walk WalkOf(const TeLaunch& launch) {
  Walk walk{launch, {}};
  const std::size_t gx = (launch.cols + 127) / 128;
  const std::size_t height = launch.kernel == TeKernel::kFusedHadamard     ? 1024
                             : launch.kernel == TeKernel::kHadamardColumns ? 512
                                                                           : 128;
  for (std::size_t by = 0; by < (launch.rows + height - 1) / height; ++by) {
    for (std::size_t bx = 0; bx < gx; ++bx) {
      switch (launch.kernel) {
        case TeKernel::kTuned:
          WalkTuned(&walk, by, bx, gx);
          break;
        case TeKernel::kOpt2d:
          WalkOpt2d(&walk, by, bx, gx);
          break;
        case TeKernel::kGeneric:
          WalkGeneric(&walk, by, bx, gx);
          break;
        case TeKernel::kFusedHadamard:
          WalkHadamard(&walk, by, bx, gx);
          break;
        case TeKernel::kHadamardColumns:
          WalkHadamardColumns(&walk, by, bx, gx);
          break;
      }
    }
  }
  return walk;
}

std::vector<TeLaunch> Launches() {
  std::vector<TeLaunch> launches;
  for (const NamedTeKernel& kernel : kTeKernels) {
    for (const auto& [rowwise, columnwise] :
         {std::pair{true, false}, std::pair{true, true}, std::pair{false, true}}) {
      if (kernel.kernel == TeKernel::kTuned && !rowwise) continue;
      if (kernel.kernel == TeKernel::kHadamardColumns && rowwise) continue;
      const bool hadamard = kernel.kernel >= TeKernel::kFusedHadamard;
      const std::size_t tall = hadamard ? 1040 : 144;
      for (const auto& [rows, cols] :
           {std::pair<std::size_t, std::size_t>{128, 128}, {tall, 272}, {16, 48}, {160, 16}}) {
        launches.push_back({kernel.kernel, rows, cols, rowwise, columnwise});
      }
    }
  }
  return launches;
}

TEST_CASE("Every element has the word that the walk over a kernel's threads gives it",
          "[block][replay][property]") {
  for (const TeLaunch& launch : Launches()) {
    const Walk walk = WalkOf(launch);
    INFO(static_cast<int>(launch.kernel) << " " << launch.rows << "x" << launch.cols);
    CHECK(walk.twice == 0);
    std::size_t wrong = 0, elements = 0;
    for (const bool columnwise : {false, true}) {
      if (columnwise ? !launch.columnwise : !launch.rowwise) continue;
      for (std::size_t r = 0; r < launch.rows; ++r) {
        for (std::size_t c = 0; c < launch.cols; ++c, ++elements) {
          const auto found = walk.words.find({columnwise, r, c});
          wrong += found == walk.words.end() || found->second != TeWordOf(launch, columnwise, r, c);
        }
      }
    }
    CHECK(wrong == 0);
    CHECK(walk.words.size() == elements);
  }
}

TEST_CASE("No two elements share a word and lane, and all lie in range",
          "[block][replay][property]") {
  for (const TeLaunch& launch : Launches()) {
    std::set<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> taken;
    std::size_t twice = 0, outside = 0;
    for (const bool columnwise : {false, true}) {
      if (columnwise ? !launch.columnwise : !launch.rowwise) continue;
      for (std::size_t r = 0; r < launch.rows; ++r) {
        for (std::size_t c = 0; c < launch.cols; ++c) {
          const TeWord at = TeWordOf(launch, columnwise, r, c);
          twice += !taken.emplace(at.subsequence, at.word, at.lane).second;
          outside += at.word >= TeWordsAStream(launch) || at.lane != (columnwise ? r : c) % 4 ||
                     at.subsequence >= TeSubsequences(launch);
        }
      }
    }
    INFO(static_cast<int>(launch.kernel) << " " << launch.rows << "x" << launch.cols);
    CHECK(twice == 0);
    CHECK(outside == 0);
  }
}

TEST_CASE("The words of a launch are those of the threads' streams, ready to be replayed",
          "[block][replay]") {
  const TeLaunch launch{TeKernel::kTuned, 32, 144, true, true};
  const std::uint64_t seed = 0x123456789ABCDEF0u, offset = 5;
  const std::vector<std::uint32_t> rows = TeWords(launch, false, seed, offset);
  const std::vector<std::uint32_t> columns = TeWords(launch, true, seed, offset);
  REQUIRE(rows.size() == 32 * 36);
  REQUIRE(columns.size() == 144 * 8);
  // Thread 6 of the first chunk: row 1, columns 32 to 47; its second word serves columns 36 to 39.
  const TransformerEngineStream thread6{.seed = seed, .subsequence = 6, .offset = offset};
  CHECK(rows[1 * 36 + 9] == thread6.Block(0)[1]);
  // Column 130 is column 2 of the second chunk, lane 1: rows 0 to 15 are warp 0's, thread 1.
  const TransformerEngineStream thread1{.seed = seed, .subsequence = 129, .offset = offset};
  CHECK(columns[130 * 8 + 0] == thread1.Block(2)[0]);
  const Matrix<float> x = TestMatrix(Kind::kNormal, 32, 144);
  const Dialect nvfp4 = *FindDialect("nvfp4");
  CHECK_NOTHROW(QuantizeReplayed(nvfp4, x.View(), {}, RandomForm::kTe8, rows));
  CHECK_NOTHROW(QuantizeReplayed(nvfp4, x.View().Transposed(), {}, RandomForm::kTe8, columns));
}

TEST_CASE("Launches replayed with these words are judged stochastic, rowwise and columnwise",
          "[block][replay][stochastic]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 160, 144);
  const Dialect nvfp4 = *FindDialect("nvfp4");
  for (const NamedTeKernel& kernel : kTeKernels) {
    const TeLaunch launch{kernel.kernel, x.rows, x.cols,
                          kernel.kernel != TeKernel::kHadamardColumns, true};
    for (const bool columnwise : {false, true}) {
      if (!columnwise && !launch.rowwise) continue;
      const MatrixView<const float> view = columnwise ? x.View().Transposed() : x.View();
      std::vector<std::vector<std::uint8_t>> codes;
      Matrix<float> scaled;
      for (std::uint64_t offset = 0; offset < 2; ++offset) {  // a launch takes 1024 blocks at most
        const Quantized q = QuantizeReplayed(nvfp4, view, {}, RandomForm::kTe8,
                                             TeWords(launch, columnwise, 7, 1024 * offset));
        codes.push_back(q.codes);
        scaled = ScaledElements(nvfp4, view, q);
      }
      const StochasticVerdict verdict = JudgeStochastic({FormatId::kE2M1,
                                                         RandomForm::kTe8,
                                                         view.rows,
                                                         view.cols,
                                                         scaled.values,
                                                         {codes[0], codes[1]}});
      INFO(kernel.name << (columnwise ? " columnwise: " : " rowwise: ") << verdict.reason);
      CHECK(verdict.answer == StochasticAnswer::kAccepted);
      // The first launch twice, as if the offset had not advanced.
      const StochasticVerdict same = JudgeStochastic({FormatId::kE2M1,
                                                      RandomForm::kTe8,
                                                      view.rows,
                                                      view.cols,
                                                      scaled.values,
                                                      {codes[0], codes[0]}});
      CHECK(same.answer == StochasticAnswer::kRefused);
    }
  }
}

TEST_CASE("The tile of Hadamard columns depends on the shape", "[block][replay]") {
  // Token 1024: the second tile of 1024, or the third of 512; feature 300 lies in the third 128.
  const auto at = [](std::size_t rows, std::size_t cols, std::size_t row) {
    return TeWordOf({TeKernel::kHadamardColumns, rows, cols, false, true}, true, row, 300)
        .subsequence;
  };
  CHECK(at(2048, 1024, 1024) == 44 + 256 * 16 * (2 + 8));
  CHECK(at(2048, 512, 1024) == 44 + 256 * 8 * (2 + 2 * 4));
  CHECK(at(8192, 2560, 1280) == 44 + 256 * 20 * (2 + 20));
  CHECK(at(512, 8192, 256) == 44 + 256 * 4 * (2 + 64));
}

TEST_CASE("An output that a launch does not make has no words", "[block][replay]") {
  CHECK_THROWS_AS(TeWordOf({TeKernel::kOpt2d, 16, 16, true, false}, true, 0, 0), std::logic_error);
  CHECK_THROWS_AS(TeWordOf({TeKernel::kTuned, 16, 16, false, true}, true, 0, 0), std::logic_error);
  CHECK_THROWS_AS(TeWordOf({TeKernel::kGeneric, 16, 16, true, true}, true, 16, 0),
                  std::logic_error);
}

}  // namespace
}  // namespace fp4lab
