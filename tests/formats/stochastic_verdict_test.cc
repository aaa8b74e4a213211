// The verdict on stochastic rounding: right kernels are refused no oftener than the stated error
// rate, wrong kernels are refused.
#include "fp4lab/formats/stochastic_verdict.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/formats/tail_bounds.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Answer = StochasticAnswer;

// Element k: the probability of k successes in independent draws of probabilities p.
std::vector<long double> Distribution(const std::vector<double>& p) {
  std::vector<long double> mass(p.size() + 1, 0.0L);
  mass[0] = 1.0L;
  for (std::size_t i = 0; i < p.size(); ++i) {
    for (std::size_t k = i + 1; k > 0; --k) mass[k] = mass[k] * (1.0L - p[i]) + mass[k - 1] * p[i];
    mass[0] *= 1.0L - p[i];
  }
  return mass;
}
double ExactPValue(const std::vector<double>& p, std::size_t yes) {
  const std::vector<long double> mass = Distribution(p);
  double mean = 0.0;
  for (const double one : p) mean += one;
  long double tail = 0.0L;
  for (std::size_t k = 0; k < mass.size(); ++k) {
    if (static_cast<double>(yes) < mean ? k <= yes : k >= yes) tail += mass[k];
  }
  return std::min(1.0, static_cast<double>(2.0L * tail));
}

TEST_CASE("Binomial p-values are the exact ones", "[formats][stochastic]") {
  for (const double p : {0x1p-16, 0.01, 0.3, 0.5, 0.77, 1.0 - 0x1p-16}) {
    for (const std::size_t n : {1u, 2u, 17u, 60u}) {
      for (std::size_t k = 0; k <= n; ++k) {
        const double want = ExactPValue(std::vector<double>(n, p), k);
        CHECK(std::fabs(BinomialPValue(n, k, p) - want) <= 1e-9 * want);
      }
    }
  }
}

TEST_CASE(
    "The bound for draws of different probabilities is never below the exact p-value, and "
    "near it",
    "[formats][stochastic]") {
  const RandomStream stream{.seed = 3};
  for (std::uint64_t trial = 0; trial < 6; ++trial) {
    std::vector<double> p;
    for (std::size_t i = 0; i < 40; ++i) p.push_back(UniformOpen(stream.Bits32(100 * trial + i)));
    for (std::size_t yes = 0; yes <= p.size(); ++yes) {
      DrawSum sum;
      for (std::size_t i = 0; i < p.size(); ++i) sum.Add(p[i], 1, i < yes ? 1 : 0);
      const double exact = ExactPValue(p, yes);
      CHECK(sum.PValue() >= exact * (1 - 1e-9));
      CHECK(sum.PValue() <= 30 * exact);
      CHECK(std::fabs(sum.PValueOf(0) - ExactPValue(p, 0)) <= 1e-9 * ExactPValue(p, 0));
    }
  }
}

TEST_CASE("UpCount counts the fields that go up", "[formats][stochastic]") {
  const RandomStream stream{.seed = 9};
  for (std::uint64_t i = 0; i < 40; ++i) {
    const float v = static_cast<float>(UniformOpen(stream.Bits32(i)) * 14.0 - 7.0) *
                    (i % 4 == 0 ? 0x1p-6f : 1.0f);
    for (const RandomForm form : {RandomForm::kTe8, RandomForm::kCvtRs}) {
      for (const FormatId id : {FormatId::kE2M1, FormatId::kE3M2, FormatId::kE4M3}) {
        if (!TakesForm(id, form)) continue;
        const std::uint32_t low = EncodeWithField(id, form, v, 0);
        std::uint32_t count = 0;
        for (std::uint32_t field = 0; field < 1u << BitsAField(form); ++field) {
          count += EncodeWithField(id, form, v, field) != low;
        }
        CHECK(UpCount(id, form, v) == count);
      }
    }
  }
  for (const float v : {0.0f, -0.0f, 1.5f, 6.0f, 100.0f, INFINITY, -INFINITY, NAN}) {
    CHECK(UpCount(FormatId::kE2M1, RandomForm::kTe8, v) == 0);
    CHECK(UpCount(FormatId::kE2M1, RandomForm::kCvtRs, v) == 0);
  }
}

TEST_CASE("BothUpReversed counts the fields that round both elements of a cvt.rs pair up",
          "[formats][stochastic]") {
  const RandomStream stream{.seed = 10};
  for (std::uint64_t i = 0; i < 60; ++i) {
    std::uint32_t a = stream.Bits16(2 * i), b = i % 5 == 0 ? a : stream.Bits16(2 * i + 1);
    if (i < 3) a = b = i == 0 ? 1u : i == 1 ? 0xFFFFu : 0x8000u;
    a = std::max(a, 1u);
    b = std::max(b, 1u);
    std::uint32_t count = 0;
    for (std::uint32_t field = 0; field < 0x10000; ++field) {
      count += field + a >= 0x10000 && Reversed16(field) + b >= 0x10000;
    }
    CHECK(BothUpReversed(a, b) == count);
  }
}

// A kernel: the code of element i, whose value is v, in repetition n.
using Kernel = std::function<std::uint32_t(float v, std::size_t n, std::size_t i)>;

struct Experiment {
  FormatId element = FormatId::kE2M1;
  RandomForm form = RandomForm::kCvtRs;
  std::size_t rows = 64, cols = 64, repetitions = 1;
  float one_value = 0.0f;  // value of all elements; 0: random values of both signs
};

std::vector<float> Values(const Experiment& x) {
  const RandomStream stream{.seed = 5};
  std::vector<float> v(x.rows * x.cols, x.one_value);
  const double largest = MaxFinite(x.element) * 1.02;  // some saturate
  for (std::size_t i = 0; i < v.size() && x.one_value == 0.0f; ++i) {
    v[i] = static_cast<float>((2.0 * UniformOpen(stream.Bits32(i)) - 1.0) * largest);
  }
  return v;
}

StochasticVerdict Judge(const Experiment& x, const Kernel& kernel, double error_rate = 1e-6) {
  const std::vector<float> v = Values(x);
  std::vector<std::vector<std::uint8_t>> codes(x.repetitions);
  StochasticSample sample{x.element, x.form, x.rows, x.cols, v, {}};
  for (std::size_t n = 0; n < x.repetitions; ++n) {
    for (std::size_t i = 0; i < v.size(); ++i) {
      codes[n].push_back(static_cast<std::uint8_t>(kernel(v[i], n, i)));
    }
    sample.outputs.push_back(codes[n]);
  }
  return JudgeStochastic(sample, error_rate);
}

// A kernel with the random bits of x.form: repetition n draws Philox words, and four neighbours of
// a row take the fields of one word.
Kernel FromWords(const Experiment& x, std::uint64_t seed) {
  return [x, seed](float v, std::size_t n, std::size_t i) {
    const RandomStream stream{.seed = seed, .step = static_cast<std::uint32_t>(n)};
    const std::size_t word = i / x.cols * ((x.cols + 3) / 4) + i % x.cols / 4;
    const std::uint32_t field = RandomField(x.element, x.form, stream.Bits32(word), i % x.cols % 4);
    return EncodeWithField(x.element, x.form, v, field);
  };
}

// A kernel with 16 random bits for each element, field(n, i).
Kernel FromFields(const Experiment& x,
                  std::function<std::uint32_t(std::size_t, std::size_t)> field) {
  return [x, field](float v, std::size_t n, std::size_t i) {
    return Encode(x.element, v, Rounding::kStochastic, field(n, i));
  };
}
std::uint32_t Fair(std::size_t n, std::size_t i) {
  return RandomStream{.seed = 77, .step = static_cast<std::uint32_t>(n)}.Bits16(i);
}

TEST_CASE("Both published forms and our own rounding are accepted, in every element format",
          "[formats][stochastic]") {
  for (const FormatId id :
       {FormatId::kE2M1, FormatId::kE2M3, FormatId::kE3M2, FormatId::kE4M3, FormatId::kE5M2}) {
    for (const RandomForm form : {RandomForm::kTe8, RandomForm::kCvtRs}) {
      if (!TakesForm(id, form)) continue;
      for (const std::size_t repetitions : {1u, 3u, 20u}) {
        for (const float one_value : {0.0f, 0.3f}) {
          Experiment x{.element = id, .form = form, .repetitions = repetitions};
          x.cols = 62;  // the last group of a row is partial
          x.rows = repetitions == 20 ? 16 : 64;
          x.one_value = one_value;
          const StochasticVerdict words = Judge(x, FromWords(x, 4));
          INFO(Named(id).name << ", form " << static_cast<int>(form) << ", " << repetitions
                              << " repetitions: " << words.reason);
          CHECK(words.answer == Answer::kAccepted);
          CHECK(words.statistics.size() == 5);
          if (form == RandomForm::kTe8) continue;
          const StochasticVerdict ours = Judge(x, FromFields(x, Fair));
          INFO(ours.reason);
          CHECK(ours.answer == Answer::kAccepted);
        }
      }
    }
  }
}

TEST_CASE("A right kernel is refused no oftener than the error rate says",
          "[formats][stochastic]") {
  for (const RandomForm form : {RandomForm::kTe8, RandomForm::kCvtRs}) {
    int refused = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      Experiment x{.form = form, .rows = 16, .cols = 16, .repetitions = 4};
      x.one_value = seed % 2 == 0 ? 0.0f : 0.4f;
      refused += Judge(x, FromWords(x, 1000 + seed), 0.02).answer == Answer::kRefused;
    }
    CHECK(refused <= 12);  // an exact test expects 6, with P(> 12) below 1 %
  }
}

struct WrongKernel {
  const char* name;
  const char* statistic;  // the statistic that must fail
  Experiment experiment;
  Kernel kernel;
};

std::vector<WrongKernel> WrongKernels() {
  const Experiment one, two{.repetitions = 2}, many{.rows = 16, .cols = 32, .repetitions = 20};
  Experiment flat = one;
  flat.one_value = 0.3f;
  const auto nearest = [](float v, std::size_t, std::size_t) { return Encode(FormatId::kE2M1, v); };
  const auto cut = [](float v, std::size_t, std::size_t) {
    return Encode(FormatId::kE2M1, v, Rounding::kTowardZero);
  };
  return {
      {"all zeros", "codes", one, [](float, std::size_t, std::size_t) { return 0u; }},
      {"truncation", "rates", one, cut},
      {"truncation, repeated", "elements", many, cut},
      {"zero seed: every field 0", "rates", one,
       FromFields(one, [](std::size_t, std::size_t) { return 0u; })},
      {"round to nearest", "rates", one, nearest},
      {"round to nearest, repeated", "rates", many, nearest},
      {"always up", "rates", one,
       FromFields(one, [](std::size_t, std::size_t) { return 0xFFFFu; })},
      {"one field for all, new in every repetition", "rates", many,
       FromFields(many, [](std::size_t n, std::size_t) { return Fair(0, n); })},
      {"neighbours share a field, equal fractions", "neighbours", flat,
       FromFields(flat, [](std::size_t n, std::size_t i) { return Fair(n, i / 2); })},
      {"neighbours share a field", "neighbours", one,
       FromFields(one, [](std::size_t n, std::size_t i) { return Fair(n, i / 2); })},
      {"four share a field", "neighbours", one,
       FromFields(one, [](std::size_t n, std::size_t i) { return Fair(n, i / 4); })},
      {"the middle two of four share a field", "neighbours", one,
       FromFields(one, [](std::size_t n, std::size_t i) { return Fair(n, i - (i % 4 == 2)); })},
      {"every block of 16 draws the same", "neighbours", one,
       FromFields(one, [](std::size_t n, std::size_t i) { return Fair(n, i / 64 * 16 + i % 16); })},
      {"every row draws the same", "neighbours", one,
       FromFields(one, [](std::size_t n, std::size_t i) { return Fair(n, i % 64); })},
      {"the same bits in both repetitions", "repetitions", two,
       FromFields(two, [](std::size_t, std::size_t i) { return Fair(0, i); })},
      {"the same bits in every repetition", "elements", many,
       FromFields(many, [](std::size_t, std::size_t i) { return Fair(0, i); })},
      {"biased up by a tenth of a step", "rates", one,
       FromFields(one, [](std::size_t n,
                          std::size_t i) { return std::min(0xFFFFu, Fair(n, i) + 6554u); })},
      {"two random bits where 16 are claimed", "rates", one,
       FromFields(one, [](std::size_t n, std::size_t i) { return Fair(n, i) & 0xC000u; })},
      {"negative values are cut", "rates", one,
       [](float v, std::size_t n, std::size_t i) {
         return Encode(FormatId::kE2M1, v, Rounding::kStochastic, v < 0.0f ? 0u : Fair(n, i));
       }},
      {"one lane of 16 is cut", "rates", one,
       FromFields(one, [](std::size_t n, std::size_t i) { return i % 16 == 7 ? 0u : Fair(n, i); })},
  };
}

TEST_CASE("Wrong kernels are refused, each by the statistic that says why",
          "[formats][stochastic]") {
  for (const WrongKernel& wrong : WrongKernels()) {
    const StochasticVerdict verdict = Judge(wrong.experiment, wrong.kernel);
    INFO(wrong.name << ": " << verdict.reason);
    CHECK(verdict.answer == Answer::kRefused);
    CHECK(verdict.reason.find(wrong.statistic) != std::string::npos);
    bool fails = false, before = false;
    for (const StochasticStatistic& statistic : verdict.statistics) {
      if (statistic.p_value >= 0.25e-6) continue;
      if (!before) CHECK(verdict.reason.find(statistic.name) == 0);
      before = true;
      fails |= statistic.name == wrong.statistic;
    }
    CHECK(fails);
  }
}

TEST_CASE("The sample sizes stated in stochastic_verdict.h suffice to refuse wrong kernels",
          "[formats][stochastic]") {
  const auto refused = [](Experiment x, const Kernel& kernel) {
    return Judge(x, kernel).answer == Answer::kRefused;
  };
  Experiment x;
  x.rows = 16;
  x.cols = 16;
  CHECK(refused(x, [](float v, std::size_t, std::size_t) {
    return Encode(FormatId::kE2M1, v, Rounding::kTowardZero);
  }));
  x.cols = 32;
  CHECK(refused(x, [](float v, std::size_t, std::size_t) { return Encode(FormatId::kE2M1, v); }));
  x.repetitions = 2;
  CHECK(refused(x, FromFields(x, [](std::size_t, std::size_t i) { return Fair(0, i); })));
  x = {};
  CHECK(refused(x, FromFields(x, [](std::size_t n, std::size_t i) { return Fair(n, i / 2); })));
  CHECK(refused(x, FromFields(x, [](std::size_t n, std::size_t i) { return Fair(n, i % 64); })));
  // A rate off by 0.1 takes 2 * (4.5 / 0.1)^2 = 4050 free elements; these values give 4016 of 4096.
  int caught = 0;
  for (std::uint32_t trial = 0; trial < 100; ++trial) {
    caught += refused(x, [&](float v, std::size_t, std::size_t i) {
      const RandomStream stream{.seed = trial};
      const std::uint32_t count = UpCount(FormatId::kE2M1, RandomForm::kCvtRs, v);
      const std::uint32_t low = Encode(FormatId::kE2M1, v, Rounding::kTowardZero);
      return stream.Bits16(i) < count + 6554 && count > 0 ? low + 1 : low;
    });
  }
  CHECK(caught >= 99);
}

// The codes statistic alone refuses; the statistics of the other elements are those of a right
// kernel.
TEST_CASE("One impossible code does not falsify the other statistics", "[formats][stochastic]") {
  const Experiment x{.rows = 512, .cols = 512};
  const Kernel right = FromFields(x, Fair);
  const std::size_t where = x.cols * 3 + 7;
  const std::uint32_t impossible = right(Values(x)[where], 0, where) ^ 0x8u;  // of the other sign
  const StochasticVerdict verdict = Judge(x, [&](float v, std::size_t n, std::size_t i) {
    return i == where ? impossible : right(v, n, i);
  });
  CHECK(verdict.answer == Answer::kRefused);
  CHECK(verdict.reason.find("codes: row 3, column 7: code ") == 0);
  CHECK(verdict.reason.find("impossible: 1 of 262144 codes") != std::string::npos);
  CHECK(verdict.reason.find("so do") == std::string::npos);
  REQUIRE(verdict.statistics.size() == 5);
  const StochasticVerdict clean = Judge(x, right);
  CHECK(clean.answer == Answer::kAccepted);
  for (std::size_t s = 1; s < 5; ++s) {
    CHECK(verdict.statistics[s].p_value > 0.01);
    CHECK(std::fabs(std::log(verdict.statistics[s].p_value / clean.statistics[s].p_value)) < 0.1);
  }
}

// The stated power is neither more nor much less than the power that kernels show.
TEST_CASE("The power of a sample is what wrong kernels show", "[formats][stochastic]") {
  struct Size {
    std::size_t rows, cols, repetitions;
  };
  for (const Size size : {Size{64, 64, 1}, Size{32, 64, 4}, Size{128, 128, 1}}) {
    const Experiment x{.rows = size.rows, .cols = size.cols, .repetitions = size.repetitions};
    const StochasticPower power = Judge(x, FromFields(x, Fair)).power;
    CAPTURE(size.rows, size.repetitions, power.bias, power.bits);
    REQUIRE(power.bits >= 1);
    REQUIRE(power.bits < 12);
    const auto refused = [&](const std::function<Kernel(std::uint64_t)>& kernel_of) {
      int count = 0;
      for (std::uint64_t seed = 0; seed < 25; ++seed) {
        count += Judge(x, kernel_of(seed)).answer == Answer::kRefused ? 1 : 0;
      }
      return count;
    };
    const auto bits = [&](int kept) {
      return [&, kept](std::uint64_t seed) {
        const std::uint32_t mask = 0xFFFFu << (16 - kept) & 0xFFFFu;
        return FromFields(x, [=](std::size_t n, std::size_t i) {
          return RandomStream{.seed = seed, .step = static_cast<std::uint32_t>(n)}.Bits16(i) & mask;
        });
      };
    };
    const auto biased = [&](double by) {
      return [by](std::uint64_t seed) -> Kernel {
        return [=](float v, std::size_t n, std::size_t i) {
          const RandomStream stream{.seed = seed, .step = static_cast<std::uint32_t>(n)};
          const std::uint32_t count = UpCount(FormatId::kE2M1, RandomForm::kCvtRs, v);
          const std::uint32_t low = Encode(FormatId::kE2M1, v, Rounding::kTowardZero);
          return stream.Bits16(i) < count + by * 65536 && count > 0 ? low + 1 : low;
        };
      };
    };
    CHECK(refused(bits(power.bits)) >= 23);
    CHECK(refused(bits(power.bits + 2)) <= 12);
    CHECK(refused(biased(power.bias)) >= 23);
    CHECK(refused(biased(-power.bias)) >= 23);
    CHECK(refused(biased(power.bias / 2)) <= 12);
  }
}

TEST_CASE("Too little to judge is undecided, never accepted", "[formats][stochastic]") {
  Experiment x{.rows = 1, .cols = 8};
  const StochasticVerdict few = Judge(x, FromWords(x, 4));
  CHECK(few.answer == Answer::kUndecided);
  CHECK(few.reason.find("too few elements") == 0);
  Experiment grid;  // values of the format, which never move
  grid.one_value = 1.5f;
  const StochasticVerdict still = Judge(grid, FromWords(grid, 4));
  CHECK(still.answer == Answer::kUndecided);
  CHECK(still.free_elements == 0);
  CHECK(Judge(grid, [](float, std::size_t, std::size_t) { return 4u; }).answer == Answer::kRefused);
}

TEST_CASE("A sample whose sizes do not fit is refused", "[formats][stochastic]") {
  const std::vector<float> v(4, 0.3f);
  const std::vector<std::uint8_t> codes(4, 0), few(3, 0);
  CHECK_THROWS_AS(JudgeStochastic({FormatId::kE2M1, RandomForm::kTe8, 2, 2, v, {few}}),
                  std::logic_error);
  CHECK_THROWS_AS(JudgeStochastic({FormatId::kE2M1, RandomForm::kTe8, 2, 2, v, {}}),
                  std::logic_error);
  CHECK_THROWS_AS(JudgeStochastic({FormatId::kE4M3, RandomForm::kTe8, 2, 2, v, {codes}}),
                  std::logic_error);
  CHECK_THROWS_AS(JudgeStochastic({FormatId::kE2M1, RandomForm::kTe8, 2, 3, v, {codes}}),
                  std::logic_error);
}

}  // namespace
}  // namespace fp4lab
