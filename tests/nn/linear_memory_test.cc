// LinearMemory against the buffers that linears hold.
#include <algorithm>
#include <string>

#include "fp4lab/nn/linear.h"
#include "fp4lab/nn/linear/memory.h"
#include "fp4lab/nn/side/side_term.h"
#include "fp4lab/recipe/recipe.h"
#include "tests/nn/support.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

template <class Buffer>
double Bytes(const Buffer& buffer) {
  return static_cast<double>(buffer.size() * sizeof(typename Buffer::value_type));
}
double BytesOf(const LinearOperandValues& x) {
  return Bytes(x.memory) + Bytes(x.code_memory) + Bytes(x.scale_memory);
}
double BytesOf(const LinearScratch& s) {
  double bytes = BytesOf(s.a) + BytesOf(s.b) + BytesOf(s.weight) + Bytes(s.grad) +
                 Bytes(s.transformed) + Bytes(s.windows) + Bytes(s.decoded);
  if (s.side == nullptr) return bytes;
  for (const SplitTensor* split : {&s.side->a, &s.side->b}) {
    bytes += Bytes(split->rest_memory) + Bytes(split->side_memory);
  }
  return bytes + Bytes(s.side->other) + Bytes(s.side->product);
}

TEST_CASE("The memory of a linear is told from its shapes", "[nn]") {
  // A large weight, whose values are not kept, and a small one.
  constexpr std::size_t kTokens = 1024;
  for (const std::size_t width : {std::size_t{256}, std::size_t{768}}) {
    const Floats x = RandomFloats(kTokens * width, 1), w = RandomFloats(width * width, 2),
                 dy = RandomFloats(kTokens * width, 3);
    for (const char* name : {"fp32", "bf16", "te_nvfp4", "te_nvfp4_no_rht", "mxfp4", "te_mxfp8",
                             "te_fp8_currentscaling", "tetrajet_v2", "averis"}) {
      for (const bool observed : {false, true}) {
        INFO(name << ", width " << width << (observed ? ", observed" : ""));
        const LinearRecipe recipe = ReadRecipe(Json(name), "test").linear;
        LinearMemory told;
        told.Add(recipe, kTokens, width, width, observed);
        LinearWeight weight;
        weight.w = AsMatrix(w, width);
        LinearScratch scratch;
        Floats y(kTokens * width), dx(y.size()), dw(w.size());
        double kept = 0.0;
        const auto step = [&](const OperandObserver* observer) {
          LinearCall call;
          call.observer = observer;
          weight.Changed();
          LinearForward(recipe, call, {.x = AsMatrix(x, kTokens)}, &weight, &scratch,
                        Write::kOverwrite, AsMatrix(y, kTokens));
          LinearBackward(recipe, call, {.x = AsMatrix(x, kTokens)}, &weight,
                         {.x = AsMatrix(dy, kTokens)}, &scratch, AsMatrix(dx, kTokens),
                         AsMatrix(dw, width));
          kept = std::max(kept, BytesOf(weight.fprop) + BytesOf(weight.dgrad));
        };
        const OperandObserver look = [](const ObservedOperand&) {};
        step(nullptr);
        if (observed) step(&look);
        CHECK(kept == told.Kept());
        // Beside the buffers of LinearScratch: a packed operand, bands of windows, and an observed
        // operand before and after its quantization.
        const double shared = BytesOf(scratch), tensor = 4.0 * static_cast<double>(x.size());
        const double products = std::max(4.0 * static_cast<double>(w.size()), tensor) +
                                (observed ? 1.32 * tensor : 0.0) + 0x1p21;
        CHECK(shared <= told.Shared());
        CHECK(told.Shared() <= shared + products);
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab
