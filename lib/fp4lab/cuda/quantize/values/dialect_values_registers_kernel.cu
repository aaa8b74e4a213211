// Values for GEMMs of BF16 matrices in dialects with blocks of 16 or 32 elements of one row: a
// thread holds a block in registers. Other matrices and dialects take the kernels of
// dialect_values_kernel.cu, which read each element several times and choose each formula anew.
#include <type_traits>

#include "fp4lab/cuda/quantize/values/dialect_values.cuh"
#include "fp4lab/cuda/quantize/values/round_words.cuh"

namespace fp4lab::cuda {
namespace {

// The random words of the pairs of a block of kBlock elements, of which the first has number
// `element`, a multiple of 16.
template <ElementRounding kRounding, int kBlock>
struct BlockFields {
  std::uint32_t words[kBlock / 2] = {};

  __device__ BlockFields(const KeyedStream& random, std::uint64_t element) {
    if constexpr (kRounding == ElementRounding::kStochastic16) {
#pragma unroll
      for (int i = 0; i < kBlock / 2; i += 4) {
        const PhiloxBlock block = random.Block((element + 2 * i) / 8);
#pragma unroll
        for (int j = 0; j < 4; ++j) words[i + j] = block[j];
      }
    }
    if constexpr (kRounding == ElementRounding::kStochastic8) {  // two bytes a pair
#pragma unroll
      for (int i = 0; i < kBlock / 2; i += 8) {
        const PhiloxBlock block = random.Block((element + 2 * i) / 16);
#pragma unroll
        for (int j = 0; j < 8; ++j) words[i + j] = block[j / 2] >> (j % 2 * 16) & 0xFFFFu;
      }
    }
  }
  // The fields of element i, as ElementValues::Of takes them.
  __device__ std::uint32_t Of(int i) const {
    if constexpr (kRounding == ElementRounding::kStochastic8) return words[i / 2] >> (i % 2 * 8);
    return words[i / 2];
  }
};

// Whether RoundWords makes the block. Where the formulas of a dialect that divides are chosen at
// run time, it is twice as slow.
template <FormatId kElement, ElementRounding kRounding, bool kDivides, bool kQuest, class Formulas>
constexpr bool kRoundsWords =
    kElement == FormatId::kE2M1 && !kQuest &&
    (kRounding == ElementRounding::kNearestEven || kRounding == ElementRounding::kTiesAway) &&
    !(kDivides && std::is_same_v<Formulas, AnyFormulas>);

template <FormatId kElement, ElementRounding kRounding, bool kDivides, int kBlock, bool kAdaptive,
          bool kQuest, class Formulas, bool kTransposed>
__global__ void __launch_bounds__(kValuesThreads, kAdaptive ? 3 : 4)
    RegisterValuesKernel(const __grid_constant__ Dialect argument, RegisterJob job,
                         KeyedStream random) {
  Dialect d = argument;
  using Values = ElementValues<kElement, kRounding, kDivides>;
  Formulas::Set(&d);  // compile-time constants
  d.element = kElement;
  d.rounding = kRounding;
  d.block_rows = 1;
  d.block_cols = kBlock;
  const std::uint32_t id = blockIdx.x * kValuesThreads + threadIdx.x;
  if (id >= job.rows * (job.cols / kBlock)) return;
  const RegisterPlace place = PlaceOf<kBlock, kTransposed>(job, id);
  std::uint32_t words[kBlock / 2];
  LoadBlock<kBlock, kTransposed>(job, place, words);
  const TensorScale tensor =
      HasTensorScale(d) ? TensorScaleOf(d, job.amax[d.row_scaled ? place.row : 0]) : TensorScale{};
  if constexpr (kRoundsWords<kElement, kRounding, kDivides, kQuest, Formulas>) {
    std::uint32_t rounded[kBlock / 2];
    const BlockNumbers numbers =
        RoundWords<kRounding, kDivides, kBlock, kAdaptive>(d, argument, tensor, words, rounded);
#pragma unroll
    for (int i = 0; i < kBlock / 2; ++i) words[i] = TimesScale(d, rounded[i], numbers.scale);
    return StoreBlock<kBlock, kTransposed>(job, place, words);
  }
  const BlockNumbers numbers = ChosenOfWords<Values, kBlock, kAdaptive, kQuest>(d, tensor, words);
  const Values values(d, numbers);
  const BlockFields<kRounding, kBlock> fields(random, place.element);
#pragma unroll
  for (int i = 0; i < kBlock; i += 2) {
    const float a = values.Of(HalfOf(words[i / 2], 0), fields.Of(i), 0);
    const float b = values.Of(HalfOf(words[i / 2], 1), fields.Of(i + 1), 1);
    words[i / 2] = Bf16Pair(a * numbers.scale, b * numbers.scale);
  }
  StoreBlock<kBlock, kTransposed>(job, place, words);
}

// The dialects that the kernels are compiled for: those that recipes train with.
template <FormatId kElement, ElementRounding kRounding, bool kDivides, int kBlock, bool kAdaptive,
          bool kQuest, class Formulas>
constexpr bool IsCompiled() {
  constexpr bool kNearest = kRounding == ElementRounding::kNearestEven;
  constexpr bool kBytes = kRounding == ElementRounding::kStochastic8;
  constexpr bool kAny = std::is_same_v<Formulas, AnyFormulas>;
  if (kQuest) {
    return kElement == FormatId::kE2M1 && kNearest && kBlock == 32 && !kAdaptive && !kDivides;
  }
  if (kRounding == ElementRounding::kTiesAway) {
    return kElement == FormatId::kE2M1 && kBlock == 16 && kDivides && !kAny;
  }
  if (kAdaptive) return kElement == FormatId::kE2M1 && kBlock == 16 && !kBytes && !kDivides;
  if (kElement == FormatId::kE2M1) return !(kBytes && kDivides);
  if (kElement == FormatId::kE0M3) return kBlock == 16 && !kBytes && !kDivides;
  return kElement == FormatId::kE4M3 && kBlock == 32 && kNearest;
}

// The template arguments of a kernel, as numbers of a launch.
struct Choice {
  FormatId element;
  ElementRounding rounding;
  bool divides;
  int block;
  bool adaptive, quest, transposed;
};

template <FormatId kElement, ElementRounding kRounding, bool kDivides, int kBlock, bool kAdaptive,
          bool kQuest, class Formulas>
bool LaunchIf(const Choice& choice, const Dialect& d, const RegisterJob& job,
              const KeyedStream& random, cudaStream_t stream) {
  if constexpr (IsCompiled<kElement, kRounding, kDivides, kBlock, kAdaptive, kQuest, Formulas>()) {
    if (choice.element != kElement || choice.rounding != kRounding || choice.divides != kDivides ||
        choice.block != kBlock || choice.adaptive != kAdaptive || choice.quest != kQuest ||
        !Has<Formulas>(d)) {
      return false;
    }
    const unsigned blocks = Blocks(std::size_t{job.rows} * (job.cols / kBlock), kValuesThreads);
    const auto launch = [&](auto kernel) {
      kernel<<<blocks, kValuesThreads, 0, stream>>>(d, job, random);
    };
    choice.transposed ? launch(RegisterValuesKernel<kElement, kRounding, kDivides, kBlock,
                                                    kAdaptive, kQuest, Formulas, true>)
                      : launch(RegisterValuesKernel<kElement, kRounding, kDivides, kBlock,
                                                    kAdaptive, kQuest, Formulas, false>);
    CheckLaunch("the kernel of dialects' values in registers");
    return true;
  }
  return false;
}

template <FormatId kElement, ElementRounding kRounding>
bool LaunchAny(const Choice& c, const Dialect& d, const RegisterJob& job, const KeyedStream& random,
               cudaStream_t stream) {
  const auto of_block = [&]<int kBlock>() {
    const auto is = [&]<bool kDivides, bool kAdaptive, bool kQuest, class Formulas>(Formulas) {
      return LaunchIf<kElement, kRounding, kDivides, kBlock, kAdaptive, kQuest, Formulas>(
          c, d, job, random, stream);
    };
    if constexpr (kRounding == ElementRounding::kTiesAway) {
      return is.template operator()<true, false, false>(QuartetFormulas<Adaptive::kNo>{}) ||
             is.template operator()<true, true, false>(QuartetFormulas<Adaptive::kMse>{});
    } else {
      return is.template operator()<false, false, false>(AnyFormulas{}) ||
             is.template operator()<true, false, false>(AnyFormulas{}) ||
             is.template operator()<false, true, false>(FourOverSixFormulas<Adaptive::kMse>{}) ||
             is.template operator()<false, true, false>(FourOverSixFormulas<Adaptive::kMae>{}) ||
             is.template operator()<false, true, false>(AnyFormulas{}) ||
             is.template operator()<false, false, true>(AnyFormulas{});
    }
  };
  return of_block.template operator()<16>() || of_block.template operator()<32>();
}

template <FormatId kElement>
bool LaunchElement(const Choice& c, const Dialect& d, const RegisterJob& job,
                   const KeyedStream& random, cudaStream_t stream) {
  return LaunchAny<kElement, ElementRounding::kNearestEven>(c, d, job, random, stream) ||
         LaunchAny<kElement, ElementRounding::kTiesAway>(c, d, job, random, stream) ||
         LaunchAny<kElement, ElementRounding::kStochastic16>(c, d, job, random, stream) ||
         LaunchAny<kElement, ElementRounding::kStochastic8>(c, d, job, random, stream);
}

}  // namespace

bool LaunchRegisterValues(const Dialect& d, const SideJob& job, const ValuesJob& values,
                          cudaStream_t stream) {
  RegisterJob own;
  if (!FitsRegisters(d, job, values, &own)) return LaunchLaneValues(d, job, values, stream);
  const bool philox = values.source.generator == RandomGenerator::kPhilox;
  if (RandomBitsOf(d.rounding) != 0 && !philox) return false;
  const Choice choice{d.element,
                      d.rounding,
                      Divides(d.factor),
                      d.block_cols,
                      d.adaptive != Adaptive::kNo,
                      d.statistic == BlockStatistic::kQuest,
                      job.transposed};
  const KeyedStream random(values.source.stream);
  return LaunchElement<FormatId::kE2M1>(choice, d, own, random, stream) ||
         LaunchElement<FormatId::kE0M3>(choice, d, own, random, stream) ||
         LaunchElement<FormatId::kE4M3>(choice, d, own, random, stream);
}

}  // namespace fp4lab::cuda
