// The processes that train one run on CPUs, and what they compute together.
//
// Sums have one order, that of the micro-batches, whatever the number of processes. So a run has
// the bits of one process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/train/world.h"

namespace fp4lab {

// Elements first to end of `count`.
struct Slice {
  std::size_t first = 0, end = 0;
  std::size_t size() const { return end - first; }
};
// `count` elements in `size` slices, one after the other. All have the same size, but for the last
// ones.
std::vector<Slice> SlicesOf(std::size_t count, int size);

// Every process makes the same calls, with spans of the same sizes, in the same order.
class Processes {
 public:
  virtual ~Processes() = default;

  virtual int Rank() const = 0;
  virtual int Size() const = 0;

  // Adds the x of all processes to this process's slice of `total` (SlicesOf), in the order of
  // ranks: total[i] = ((total[i] + x[i] of rank 0) + x[i] of rank 1) + ...
  virtual void AddInOrder(std::span<const float> x, std::span<float> total) = 0;
  // Gives each process the other processes' slices of `total`; slices[r] is that of rank r.
  virtual void ShareSlices(std::span<const Slice> slices, std::span<float> total) = 0;
  // The numbers of all processes, those of rank 0 first.
  virtual std::vector<double> Gather(std::span<const double> own) = 0;
  // x = the maximum over all processes, element by element. x has no NaN.
  virtual void Max(std::span<float> x) = 0;
  // Whether `said` is true in any process.
  virtual bool Any(bool said) = 0;
};

// total[i] += x[i].
void AddTo(std::span<const float> x, std::span<float> total);

std::unique_ptr<Processes> MakeOneProcess();

// The processes of a world of several, by MPI: process r computes the micro-batches r, r + size,
// ... of each step. Waits for all of them. `why_not` says why this process cannot take part as one
// of `on_host` on its host, or "". Throws a one-line Error at `where`, the same in all processes:
// no MPI in this build (mpi_absent.cc), a launcher that the MPI library does not know, processes
// that differ (WhyApart), or the first process's reason not to take part.
std::unique_ptr<Processes> MakeMpiProcesses(const World& world, const std::string& where,
                                            const std::function<std::string(int on_host)>& why_not);

// The MPI library of this program, as "Open MPI v4.1.4"; empty in a build without MPI.
std::string MpiLibrary();

}  // namespace fp4lab
