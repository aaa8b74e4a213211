// Runs Hopper's matrix instructions (mma.sync and wgmma) on directed inputs and compares every
// output with the models of tensor/tensor_core.h, bit for bit.
//
//   tensor_core_probe [--dots N] [--seed S] [--out FOLDER]
//
// Prints one line for each instruction and its model: dot products, agreements, first disagreement.
// With --out the program writes report.json and, for each instruction, the first tiles of every
// input family as raw vectors (FOLDER/<instruction>.bin, layout in report.json). Exit status: 0 if
// all outputs agree, 2 if not, 1 on an error.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/tensor/tensor_core.h"

namespace {

using fp4lab::Format;
using fp4lab::FormatId;
using fp4lab::FormatOf;

#define CUDA_CHECK(call)                                                                          \
  do {                                                                                            \
    const cudaError_t status = (call);                                                            \
    if (status != cudaSuccess) {                                                                  \
      std::fprintf(stderr, "error: %s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
      std::exit(1);                                                                               \
    }                                                                                             \
  } while (false)

// In every instruction probed here a row of A or B is 32 bytes of K elements.
constexpr int kRowBytes = 32;
constexpr int kCols = 8;  // N

enum class Op {
  kMmaBf16,
  kMmaF16,
  kMmaF16ToF16,
  kMmaTf32,
  kMmaE4m3,
  kMmaE5m2,
  kMmaE4m3ToF16,
  kMmaE5m2ToF16,
  kWgmmaBf16,
  kWgmmaF16,
  kWgmmaF16ToF16,
  kWgmmaTf32,
  kWgmmaE4m3,
  kWgmmaE5m2,
  kWgmmaE4m3ToF16,
  kWgmmaE5m2ToF16
};

struct Instruction {
  Op op;
  const char* name;
  const char* model;
  Format operand;
  int element_bytes;
  bool is_wgmma;
  bool narrow;  // binary16 accumulator
};

const Format& kBf16 = FormatOf(FormatId::kBF16);
const Format& kF16 = FormatOf(FormatId::kFP16);
const Format& kE4m3 = FormatOf(FormatId::kE4M3);
const Format& kE5m2 = FormatOf(FormatId::kE5M2);

const Instruction kInstructions[] = {
    {Op::kMmaBf16, "mma.m16n8k16.f32.bf16", "hopper.f16.f32", kBf16, 2, false, false},
    {Op::kMmaF16, "mma.m16n8k16.f32.f16", "hopper.f16.f32", kF16, 2, false, false},
    {Op::kMmaF16ToF16, "mma.m16n8k16.f16.f16", "hopper.f16.f16", kF16, 2, false, true},
    {Op::kMmaTf32, "mma.m16n8k8.f32.tf32", "hopper.tf32.f32", fp4lab::kTf32, 4, false, false},
    {Op::kMmaE4m3, "mma.m16n8k32.f32.e4m3", "hopper.mma.f8.f32", kE4m3, 1, false, false},
    {Op::kMmaE5m2, "mma.m16n8k32.f32.e5m2", "hopper.mma.f8.f32", kE5m2, 1, false, false},
    {Op::kMmaE4m3ToF16, "mma.m16n8k32.f16.e4m3", "hopper.mma.f8.f16", kE4m3, 1, false, true},
    {Op::kMmaE5m2ToF16, "mma.m16n8k32.f16.e5m2", "hopper.mma.f8.f16", kE5m2, 1, false, true},
    {Op::kWgmmaBf16, "wgmma.m64n8k16.f32.bf16", "hopper.f16.f32", kBf16, 2, true, false},
    {Op::kWgmmaF16, "wgmma.m64n8k16.f32.f16", "hopper.f16.f32", kF16, 2, true, false},
    {Op::kWgmmaF16ToF16, "wgmma.m64n8k16.f16.f16", "hopper.f16.f16", kF16, 2, true, true},
    {Op::kWgmmaTf32, "wgmma.m64n8k8.f32.tf32", "hopper.tf32.f32", fp4lab::kTf32, 4, true, false},
    {Op::kWgmmaE4m3, "wgmma.m64n8k32.f32.e4m3", "hopper.wgmma.f8.f32", kE4m3, 1, true, false},
    {Op::kWgmmaE5m2, "wgmma.m64n8k32.f32.e5m2", "hopper.wgmma.f8.f32", kE5m2, 1, true, false},
    {Op::kWgmmaE4m3ToF16, "wgmma.m64n8k32.f16.e4m3", "hopper.wgmma.f8.f16", kE4m3, 1, true, true},
    {Op::kWgmmaE5m2ToF16, "wgmma.m64n8k32.f16.e5m2", "hopper.wgmma.f8.f16", kE5m2, 1, true, true},
};

// ---- Device -----------------------------------------------------------------------------------

// D = A B + C for the fragments of one warp. The accumulator is 4 floats, or 2 words of two halves.
template <Op op>
__device__ void Mma(std::uint32_t (&d)[4], const std::uint32_t (&a)[4],
                    const std::uint32_t (&b)[2]) {
#define MMA_F32(text)                                           \
  asm volatile(text                                             \
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define MMA_F16(text)                   \
  asm volatile(text                     \
               : "+r"(d[0]), "+r"(d[1]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define OPERANDS_F32 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#define OPERANDS_F16 " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
  if constexpr (op == Op::kMmaBf16) {
    MMA_F32("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" OPERANDS_F32);
  } else if constexpr (op == Op::kMmaF16) {
    MMA_F32("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" OPERANDS_F32);
  } else if constexpr (op == Op::kMmaTf32) {
    MMA_F32("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" OPERANDS_F32);
  } else if constexpr (op == Op::kMmaE4m3) {
    MMA_F32("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" OPERANDS_F32);
  } else if constexpr (op == Op::kMmaE5m2) {
    MMA_F32("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32" OPERANDS_F32);
  } else if constexpr (op == Op::kMmaF16ToF16) {
    MMA_F16("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16" OPERANDS_F16);
  } else if constexpr (op == Op::kMmaE4m3ToF16) {
    MMA_F16("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16" OPERANDS_F16);
  } else {
    MMA_F16("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16" OPERANDS_F16);
  }
#undef MMA_F32
#undef MMA_F16
#undef OPERANDS_F32
#undef OPERANDS_F16
}

// D = A B + C for a warpgroup: A from registers, B (8 rows of 32 bytes, K-major, no swizzle) from
// shared memory by descriptor.
template <Op op>
__device__ void Wgmma(std::uint32_t (&d)[4], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#define WGMMA_F32(shape_types, tail)                                 \
  asm volatile("wgmma.mma_async.sync.aligned." shape_types           \
               " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1" tail ";" \
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_F16(shape_types, tail)                           \
  asm volatile("wgmma.mma_async.sync.aligned." shape_types     \
               " {%0,%1}, {%2,%3,%4,%5}, %6, 1, 1, 1" tail ";" \
               : "+r"(d[0]), "+r"(d[1])                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (op == Op::kWgmmaBf16) {
    WGMMA_F32("m64n8k16.f32.bf16.bf16", ", 0");
  } else if constexpr (op == Op::kWgmmaF16) {
    WGMMA_F32("m64n8k16.f32.f16.f16", ", 0");
  } else if constexpr (op == Op::kWgmmaTf32) {
    WGMMA_F32("m64n8k8.f32.tf32.tf32", "");
  } else if constexpr (op == Op::kWgmmaE4m3) {
    WGMMA_F32("m64n8k32.f32.e4m3.e4m3", "");
  } else if constexpr (op == Op::kWgmmaE5m2) {
    WGMMA_F32("m64n8k32.f32.e5m2.e5m2", "");
  } else if constexpr (op == Op::kWgmmaF16ToF16) {
    WGMMA_F16("m64n8k16.f16.f16.f16", ", 0");
  } else if constexpr (op == Op::kWgmmaE4m3ToF16) {
    WGMMA_F16("m64n8k32.f16.e4m3.e4m3", "");
  } else {
    WGMMA_F16("m64n8k32.f16.e5m2.e5m2", "");
  }
#undef WGMMA_F32
#undef WGMMA_F16
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// One tile a block: a (rows, 32 bytes), b (8, 32 bytes), c and d (rows, 8) words, a word for each
// accumulator, binary16 ones too. rows = 16 (one warp) or 64 (a warpgroup).
template <Op op, bool is_wgmma, bool narrow>
__global__ void RunTiles(const std::uint32_t* a, const std::uint32_t* b, const std::uint32_t* c,
                         std::uint32_t* d) {
  constexpr int kRows = is_wgmma ? 64 : 16;
  constexpr int kRowWords = kRowBytes / 4;
  a += blockIdx.x * kRows * kRowWords;
  b += blockIdx.x * kCols * kRowWords;
  c += blockIdx.x * kRows * kCols;
  d += blockIdx.x * kRows * kCols;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = (threadIdx.x / 32) * 16 + g;
  const std::uint32_t fragment[4] = {a[row * kRowWords + t], a[(row + 8) * kRowWords + t],
                                     a[row * kRowWords + 4 + t], a[(row + 8) * kRowWords + 4 + t]};
  const int corner[4] = {row * kCols + 2 * t, row * kCols + 2 * t + 1, (row + 8) * kCols + 2 * t,
                         (row + 8) * kCols + 2 * t + 1};
  std::uint32_t sum[4] = {};
  if constexpr (narrow) {
    sum[0] = c[corner[0]] | c[corner[1]] << 16;
    sum[1] = c[corner[2]] | c[corner[3]] << 16;
  } else {
    for (int i = 0; i < 4; ++i) sum[i] = c[corner[i]];
  }
  if constexpr (is_wgmma) {
    // Two core matrices of 8 rows x 16 bytes, one for each half of K.
    __shared__ alignas(128) std::uint32_t core[2][8][4];
    if (threadIdx.x < 64) {
      const int half = threadIdx.x / 32, n = (threadIdx.x % 32) / 4, word = threadIdx.x % 4;
      core[half][n][word] = b[n * kRowWords + half * 4 + word];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const std::uint64_t address = __cvta_generic_to_shared(&core[0][0][0]);
    constexpr std::uint64_t kLeading = 128 >> 4, kStride = 256 >> 4;
    const std::uint64_t descriptor = ((address & 0x3FFFF) >> 4) | kLeading << 16 | kStride << 32;
    Wgmma<op>(sum, fragment, descriptor);
  } else {
    const std::uint32_t columns[2] = {b[g * kRowWords + t], b[g * kRowWords + 4 + t]};
    Mma<op>(sum, fragment, columns);
  }
  if constexpr (narrow) {
    for (int i = 0; i < 4; ++i) d[corner[i]] = (sum[i / 2] >> (i % 2 * 16)) & 0xFFFFu;
  } else {
    for (int i = 0; i < 4; ++i) d[corner[i]] = sum[i];
  }
}

template <Op op, bool is_wgmma, bool narrow>
void Launch(int tiles, const std::uint32_t* a, const std::uint32_t* b, const std::uint32_t* c,
            std::uint32_t* d) {
  RunTiles<op, is_wgmma, narrow><<<tiles, is_wgmma ? 128 : 32>>>(a, b, c, d);
}

void Launch(Op op, int tiles, const std::uint32_t* a, const std::uint32_t* b,
            const std::uint32_t* c, std::uint32_t* d) {
  switch (op) {
    case Op::kMmaBf16:
      return Launch<Op::kMmaBf16, false, false>(tiles, a, b, c, d);
    case Op::kMmaF16:
      return Launch<Op::kMmaF16, false, false>(tiles, a, b, c, d);
    case Op::kMmaF16ToF16:
      return Launch<Op::kMmaF16ToF16, false, true>(tiles, a, b, c, d);
    case Op::kMmaTf32:
      return Launch<Op::kMmaTf32, false, false>(tiles, a, b, c, d);
    case Op::kMmaE4m3:
      return Launch<Op::kMmaE4m3, false, false>(tiles, a, b, c, d);
    case Op::kMmaE5m2:
      return Launch<Op::kMmaE5m2, false, false>(tiles, a, b, c, d);
    case Op::kMmaE4m3ToF16:
      return Launch<Op::kMmaE4m3ToF16, false, true>(tiles, a, b, c, d);
    case Op::kMmaE5m2ToF16:
      return Launch<Op::kMmaE5m2ToF16, false, true>(tiles, a, b, c, d);
    case Op::kWgmmaBf16:
      return Launch<Op::kWgmmaBf16, true, false>(tiles, a, b, c, d);
    case Op::kWgmmaF16:
      return Launch<Op::kWgmmaF16, true, false>(tiles, a, b, c, d);
    case Op::kWgmmaF16ToF16:
      return Launch<Op::kWgmmaF16ToF16, true, true>(tiles, a, b, c, d);
    case Op::kWgmmaTf32:
      return Launch<Op::kWgmmaTf32, true, false>(tiles, a, b, c, d);
    case Op::kWgmmaE4m3:
      return Launch<Op::kWgmmaE4m3, true, false>(tiles, a, b, c, d);
    case Op::kWgmmaE5m2:
      return Launch<Op::kWgmmaE5m2, true, false>(tiles, a, b, c, d);
    case Op::kWgmmaE4m3ToF16:
      return Launch<Op::kWgmmaE4m3ToF16, true, true>(tiles, a, b, c, d);
    case Op::kWgmmaE5m2ToF16:
      return Launch<Op::kWgmmaE5m2ToF16, true, true>(tiles, a, b, c, d);
  }
}

// ---- Inputs -----------------------------------------------------------------------------------

// Tile t holds family t % kFamilies.
constexpr const char* kFamilyNames[] = {"any bits",  "like training", "cancelling",
                                        "subnormal", "overflow",      "wide range"};
constexpr int kFamilies = 6;

struct Tiles {
  int rows, k;
  std::vector<std::uint32_t> a, b, c, d;  // words as the device sees them
};

// One operand element: `bits` random, shaped by the family.
std::uint32_t Element(const Format& f, int family, std::uint32_t bits) {
  const std::uint32_t sign = (bits >> 31) << (f.bits - 1);
  const std::uint32_t fraction = (bits >> 8) & ((1u << f.mantissa_bits) - 1);
  const int max_field = (1 << f.exponent_bits) - 1;
  int field = 0;
  switch (family) {
    case 0:
      return bits & ((1u << f.bits) - 1);
    case 1:
    case 2:
      field = f.bias - static_cast<int>(bits % 4);
      break;
    case 3:
      field = static_cast<int>(bits % 3) == 0 ? 1 : 0;
      break;
    case 4:
      field = max_field - 1 - static_cast<int>(bits % 3);
      break;
    default:
      field = static_cast<int>(bits % static_cast<std::uint32_t>(max_field));
      break;
  }
  field = field < 0 ? 0 : field;
  return sign | static_cast<std::uint32_t>(field) << f.mantissa_bits | fraction;
}

std::uint32_t Accumulator(bool narrow, int family, std::uint32_t bits, std::uint32_t choice) {
  if (choice % 4 == 0) return 0;
  const Format f = narrow ? kF16 : Format{32, 8, 23, 127, fp4lab::Specials::kInfAndNan, true};
  if (family == 0) return narrow ? bits & 0xFFFFu : bits;
  const int spread = narrow ? 12 : 40;
  int field = f.bias + 2 - static_cast<int>(choice / 4 % static_cast<std::uint32_t>(spread));
  if (family == 3) field = static_cast<int>(choice / 4 % 4);
  if (family == 4) field = (1 << f.exponent_bits) - 2;
  if (field < 0) field = 0;
  const std::uint32_t sign = narrow ? (bits >> 31) << 15 : bits & 0x80000000u;
  const std::uint32_t fraction = bits & ((1u << f.mantissa_bits) - 1);
  return sign | static_cast<std::uint32_t>(field) << f.mantissa_bits | fraction;
}

Tiles MakeTiles(const Instruction& instruction, int index, int tiles, std::uint64_t seed) {
  Tiles t;
  t.rows = instruction.is_wgmma ? 64 : 16;
  t.k = kRowBytes / instruction.element_bytes;
  const int per_word = 4 / instruction.element_bytes;
  const auto fill = [&](std::vector<std::uint32_t>* words, int rows, std::uint32_t which) {
    words->assign(static_cast<std::size_t>(tiles) * rows * kRowBytes / 4, 0);
    const fp4lab::RandomStream random{seed, static_cast<std::uint32_t>(index), which};
    fp4lab::ParallelFor(static_cast<std::size_t>(tiles), [&](std::size_t tile) {
      const int family = static_cast<int>(tile % kFamilies);
      const std::size_t begin = tile * rows * t.k;
      for (std::size_t i = begin; i < begin + static_cast<std::size_t>(rows) * t.k; ++i) {
        std::size_t source = i;
        // Cancelling: odd elements repeat the even ones, in A with the other sign.
        if (family == 2 && i % 2 == 1) source = i - 1;
        std::uint32_t code = Element(instruction.operand, family, random.Bits32(source));
        if (source != i && which == 0) code ^= 1u << (instruction.operand.bits - 1);
        if (instruction.element_bytes == 4) {
          // binary32 in memory: the low 13 bits are noise that the tensor core drops.
          code = code << 13 | (random.Bits32(source) >> 3 & 0x1FFFu);
        }
        (*words)[i / per_word] |= code << (i % per_word * 8 * instruction.element_bytes);
      }
    });
  };
  fill(&t.a, t.rows, 0);
  fill(&t.b, kCols, 1);
  const fp4lab::RandomStream random{seed, static_cast<std::uint32_t>(index), 2};
  const fp4lab::RandomStream choice{seed, static_cast<std::uint32_t>(index), 3};
  t.c.resize(static_cast<std::size_t>(tiles) * t.rows * kCols);
  for (std::size_t i = 0; i < t.c.size(); ++i) {
    const int family = static_cast<int>(i / (static_cast<std::size_t>(t.rows) * kCols) % kFamilies);
    t.c[i] = Accumulator(instruction.narrow, family, random.Bits32(i), choice.Bits32(i));
  }
  t.d.assign(t.c.size(), 0xDEADBEEFu);
  return t;
}

std::vector<std::uint32_t> Codes(const Instruction& instruction, const std::uint32_t* row_words) {
  const int k = kRowBytes / instruction.element_bytes;
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(k));
  for (int i = 0; i < k; ++i) {
    const int bit = i * 8 * instruction.element_bytes;
    const std::uint32_t word = row_words[bit / 32] >> (bit % 32);
    codes[static_cast<std::size_t>(i)] = instruction.element_bytes == 4   ? word >> 13
                                         : instruction.element_bytes == 2 ? word & 0xFFFFu
                                                                          : word & 0xFFu;
  }
  return codes;
}

// ---- Running and judging -----------------------------------------------------------------------

void RunOnDevice(const Instruction& instruction, int tiles, Tiles* t) {
  std::uint32_t *a = nullptr, *b = nullptr, *c = nullptr, *d = nullptr;
  CUDA_CHECK(cudaMalloc(&a, t->a.size() * 4));
  CUDA_CHECK(cudaMalloc(&b, t->b.size() * 4));
  CUDA_CHECK(cudaMalloc(&c, t->c.size() * 4));
  CUDA_CHECK(cudaMalloc(&d, t->d.size() * 4));
  CUDA_CHECK(cudaMemcpy(a, t->a.data(), t->a.size() * 4, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaMemcpy(b, t->b.data(), t->b.size() * 4, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaMemcpy(c, t->c.data(), t->c.size() * 4, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaMemcpy(d, t->d.data(), t->d.size() * 4, cudaMemcpyHostToDevice));
  Launch(instruction.op, tiles, a, b, c, d);
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaMemcpy(t->d.data(), d, t->d.size() * 4, cudaMemcpyDeviceToHost));
  for (std::uint32_t* p : {a, b, c, d}) CUDA_CHECK(cudaFree(p));
}

struct Verdict {
  std::size_t total = 0, equal = 0;
  std::size_t family_total[kFamilies] = {}, family_equal[kFamilies] = {};
  std::string first;  // the first disagreement
};

Verdict Judge(const Instruction& instruction, int tiles, const Tiles& t) {
  const fp4lab::TensorCoreModel& model = *fp4lab::FindTensorCoreModel(instruction.model);
  const std::size_t per_tile = static_cast<std::size_t>(t.rows) * kCols;
  std::vector<std::uint32_t> expected(t.d.size());
  fp4lab::ParallelFor(static_cast<std::size_t>(tiles), [&](std::size_t tile) {
    for (int row = 0; row < t.rows; ++row) {
      const auto a = Codes(instruction, &t.a[(tile * t.rows + row) * kRowBytes / 4]);
      for (int col = 0; col < kCols; ++col) {
        const auto b = Codes(instruction, &t.b[(tile * kCols + col) * kRowBytes / 4]);
        const std::size_t i = tile * per_tile + static_cast<std::size_t>(row) * kCols + col;
        expected[i] =
            fp4lab::TensorCoreDot(model, instruction.operand, a, instruction.operand, b, t.c[i]);
      }
    }
  });
  Verdict v;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t family = i / per_tile % kFamilies;
    const bool equal = expected[i] == t.d[i];
    ++v.total;
    ++v.family_total[family];
    v.equal += equal;
    v.family_equal[family] += equal;
    if (!equal && v.first.empty()) {
      char text[160];
      std::snprintf(text, sizeof text, "%s, tile %zu, output %zu: device %08x, model %08x, c %08x",
                    kFamilyNames[family], i / per_tile, i % per_tile, t.d[i], expected[i], t.c[i]);
      v.first = text;
    }
  }
  return v;
}

// The first `count` tiles as little-endian words: a, b, c, d of each tile in turn.
void WriteRaw(const std::string& path, const Tiles& t, int count) {
  std::ofstream file(path, std::ios::binary);
  const auto put = [&file](const std::vector<std::uint32_t>& words, std::size_t tile,
                           std::size_t per_tile) {
    file.write(reinterpret_cast<const char*>(&words[tile * per_tile]),
               static_cast<std::streamsize>(per_tile * 4));
  };
  for (int tile = 0; tile < count; ++tile) {
    put(t.a, tile, static_cast<std::size_t>(t.rows) * kRowBytes / 4);
    put(t.b, tile, static_cast<std::size_t>(kCols) * kRowBytes / 4);
    put(t.c, tile, static_cast<std::size_t>(t.rows) * kCols);
    put(t.d, tile, static_cast<std::size_t>(t.rows) * kCols);
  }
}

}  // namespace

int main(int argc, char** argv) {
  long dots = 1'200'000;
  std::uint64_t seed = 1;
  std::string out;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--dots")
      dots = std::atol(argv[i + 1]);
    else if (option == "--seed")
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (option == "--out")
      out = argv[i + 1];
    else
      return std::fprintf(stderr, "error: unknown option %s\n", argv[i]), 1;
  }
  cudaDeviceProp device{};
  CUDA_CHECK(cudaGetDeviceProperties(&device, 0));
  int driver = 0;
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  std::printf("%s, sm_%d%d, driver API %d\n", device.name, device.major, device.minor, driver);
  std::string report = "{\n \"chip\": \"" + std::string(device.name) +
                       "\",\n \"seed\": " + std::to_string(seed) + ",\n \"instructions\": {";
  bool all_equal = true;
  int index = 0;
  for (const Instruction& instruction : kInstructions) {
    const int tiles = static_cast<int>(dots / (instruction.is_wgmma ? 512 : 128)) + 1;
    Tiles t = MakeTiles(instruction, index, tiles, seed);
    RunOnDevice(instruction, tiles, &t);
    const Verdict v = Judge(instruction, tiles, t);
    all_equal &= v.equal == v.total;
    std::printf("%-26s %-20s %9zu of %9zu equal%s%s\n", instruction.name, instruction.model,
                v.equal, v.total, v.first.empty() ? "" : "; first: ", v.first.c_str());
    report += std::string(index == 0 ? "\n" : ",\n") + "  \"" + instruction.name +
              "\": {\"model\": \"" + instruction.model +
              "\", \"total\": " + std::to_string(v.total) +
              ", \"equal\": " + std::to_string(v.equal) + ", \"families\": {";
    for (int f = 0; f < kFamilies; ++f) {
      report += std::string(f == 0 ? "" : ", ") + "\"" + kFamilyNames[f] + "\": [" +
                std::to_string(v.family_equal[f]) + ", " + std::to_string(v.family_total[f]) + "]";
      if (v.family_equal[f] != v.family_total[f]) {
        std::printf("    %s: %zu of %zu\n", kFamilyNames[f], v.family_equal[f], v.family_total[f]);
      }
    }
    report += "}}";
    if (!out.empty()) {
      WriteRaw(out + "/" + instruction.name + ".bin", t, 2 * kFamilies);
    }
    ++index;
  }
  report += "\n }\n}\n";
  if (!out.empty()) std::ofstream(out + "/report.json") << report;
  return all_equal ? 0 : 2;
}
