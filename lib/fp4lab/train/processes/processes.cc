#include "fp4lab/train/processes/processes.h"

#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"

namespace fp4lab {
namespace {

class OneProcess final : public Processes {
 public:
  int Rank() const override { return 0; }
  int Size() const override { return 1; }
  void AddInOrder(std::span<const float> x, std::span<float> total) override { AddTo(x, total); }
  void ShareSlices(std::span<const Slice> /*slices*/, std::span<float> /*total*/) override {}
  std::vector<double> Gather(std::span<const double> own) override {
    return {own.begin(), own.end()};
  }
  void Max(std::span<float> /*x*/) override {}
  bool Any(bool said) override { return said; }
};

}  // namespace

std::vector<Slice> SlicesOf(std::size_t count, int size) {
  const std::size_t length = DivideUp(count, static_cast<std::size_t>(size));
  std::vector<Slice> slices;
  for (std::size_t first = 0; slices.size() < static_cast<std::size_t>(size);) {
    const std::size_t end = std::min(count, first + length);
    slices.push_back({first, end});
    first = end;
  }
  return slices;
}

void AddTo(std::span<const float> x, std::span<float> total) {
  Expects(x.size() == total.size(), "AddTo: equal sizes");
  constexpr std::size_t kPiece = std::size_t{1} << 14;
  ParallelFor(DivideUp(x.size(), kPiece), [&](std::size_t piece) {
    const std::size_t end = std::min(x.size(), (piece + 1) * kPiece);
    for (std::size_t i = piece * kPiece; i < end; ++i) total[i] += x[i];
  });
}

std::unique_ptr<Processes> MakeOneProcess() { return std::make_unique<OneProcess>(); }

}  // namespace fp4lab
