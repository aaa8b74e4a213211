// The instructions of tcgen05 that block-scaled products use, for one CTA, a function for each. PTX
// ISA 9.0, "Tensorcore 5th Generation Family Instructions". Only for sm_100a and sm_103a.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/cuda/gemm/tcgen05_descriptor.h"

namespace fp4lab::cuda {

// The tensor core and tensor memory. A whole warp calls Allocate, Free, Load and Store; one thread
// calls the other functions, and its copies and products run in the order of issue.
template <unsigned kColumns>  // a power of 2
struct TensorCoreMemory {
  static constexpr bool kOneThread = true;

  // Allocates kColumns columns and writes their address to *address, in shared memory.
  __device__ void Allocate(std::uint32_t* address) const {
    if (threadIdx.x >= 32) return;
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     SharedAddress(address)),
                 "n"(kColumns)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  __device__ void Free(std::uint32_t address) const {
    if (threadIdx.x >= 32) return;
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address),
                 "n"(kColumns));
  }

  // Load and Store move eight columns of the warp's 32 lanes of tensor memory, lane i from and to
  // thread i, and wait until done.
  __device__ void Load(std::uint32_t address, std::uint32_t (&x)[8]) const {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];\n"
        "tcgen05.wait::ld.sync.aligned;"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]), "=r"(x[6]),
          "=r"(x[7])
        : "r"(address)
        : "memory");
  }
  __device__ void Store(std::uint32_t address, const std::uint32_t (&x)[8]) const {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x8.b32 [%8], {%0, %1, %2, %3, %4, %5, %6, %7};\n"
        "tcgen05.wait::st.sync.aligned;" ::"r"(x[0]),
        "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]), "r"(address)
        : "memory");
  }

  __device__ void CopyScales(std::uint32_t tensor, std::uint64_t shared) const {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(tensor), "l"(shared)
                 : "memory");
  }
  // d = a b^T in 128 lanes and n columns, plus d if `accumulate`.
  template <BlockScaling kScaling>
  __device__ void Multiply(std::uint32_t d, std::uint64_t a, std::uint64_t b,
                           std::uint32_t descriptor, std::uint32_t a_scales, std::uint32_t b_scales,
                           bool accumulate) const {
    const std::uint32_t flag = accumulate ? 1 : 0;
    if constexpr (kScaling == BlockScaling::kNvfp4) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.u32 p, %6, 0;\n"
          "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 "
          "[%0], %1, %2, %3, [%4], [%5], p;\n}" ::"r"(d),
          "l"(a), "l"(b), "r"(descriptor), "r"(a_scales), "r"(b_scales), "r"(flag)
          : "memory");
    } else {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.u32 p, %6, 0;\n"
          "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 "
          "[%0], %1, %2, %3, [%4], [%5], p;\n}" ::"r"(d),
          "l"(a), "l"(b), "r"(descriptor), "r"(a_scales), "r"(b_scales), "r"(flag)
          : "memory");
    }
  }
  // Arrives at the barrier when all copies and products that the thread has issued are done.
  __device__ void CommitTo(std::uint64_t* barrier) const {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            SharedAddress(barrier))
        : "memory");
  }

  // The fences stand before and after a barrier that orders the accesses of threads to tensor
  // memory.
  __device__ void FenceBeforeBarrier() const {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  }
  __device__ void FenceAfterBarrier() const {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  }
};

// ---- Order of shared memory: sm_90 and later ----

// Makes the thread's stores to shared memory visible to the tensor core after the next barrier.
__device__ inline void FenceStores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void InitBarrier(std::uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
}
__device__ inline void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Waits for the end of a phase. Parities alternate: the first phase has parity 0, the next 1.
__device__ inline void WaitFor(std::uint64_t* barrier, unsigned parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  }
}

}  // namespace fp4lab::cuda
