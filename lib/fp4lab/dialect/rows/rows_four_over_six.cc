// Four over six: each block takes the better of two scales, for a largest element of 6 and of 4.
#include <array>

#include "fp4lab/dialect/rows/rows.h"

namespace fp4lab {
namespace {

struct TeRow {
  std::string_view name;
  Adaptive adaptive;
  float scale_max;
  bool square, fp16, row_scaled = false;
};
constexpr std::array kTeRows = {
    TeRow{"nvfp4.te.4over6.mae.448", Adaptive::kMae, 448, false, false},
    TeRow{"nvfp4.te.4over6.mae.256", Adaptive::kMae, 256, false, false},
    TeRow{"nvfp4.te.4over6.mse.448", Adaptive::kMse, 448, false, false},
    TeRow{"nvfp4.te.4over6.mse.256", Adaptive::kMse, 256, false, false},
    TeRow{"nvfp4.te.4over6.mae.448.2d", Adaptive::kMae, 448, true, false},
    TeRow{"nvfp4.te.4over6.mae.256.2d", Adaptive::kMae, 256, true, false},
    TeRow{"nvfp4.te.4over6.mse.448.2d", Adaptive::kMse, 448, true, false},
    TeRow{"nvfp4.te.4over6.mse.256.2d", Adaptive::kMse, 256, true, false},
    TeRow{"nvfp4.te.4over6.mae.448.fast-error", Adaptive::kMae, 448, false, true},
    TeRow{"nvfp4.te.4over6.mae.256.fast-error", Adaptive::kMae, 256, false, true},
    TeRow{"nvfp4.te.4over6.mse.448.fast-error", Adaptive::kMse, 448, false, true},
    TeRow{"nvfp4.te.4over6.mse.256.fast-error", Adaptive::kMse, 256, false, true},
    TeRow{"nvfp4.te.4over6.mae.448.2d.fast-error", Adaptive::kMae, 448, true, true},
    TeRow{"nvfp4.te.4over6.mae.256.2d.fast-error", Adaptive::kMae, 256, true, true},
    TeRow{"nvfp4.te.4over6.mse.448.2d.fast-error", Adaptive::kMse, 448, true, true},
    TeRow{"nvfp4.te.4over6.mse.256.2d.fast-error", Adaptive::kMse, 256, true, true},
    TeRow{"nvfp4.te.4over6.mae.448.row-scaled", Adaptive::kMae, 448, false, false, true},
    TeRow{"nvfp4.te.4over6.mae.256.row-scaled", Adaptive::kMae, 256, false, false, true},
    TeRow{"nvfp4.te.4over6.mse.448.row-scaled", Adaptive::kMse, 448, false, false, true},
    TeRow{"nvfp4.te.4over6.mse.256.row-scaled", Adaptive::kMse, 256, false, false, true},
    TeRow{"nvfp4.te.4over6.mae.448.row-scaled.fast-error", Adaptive::kMae, 448, false, true, true},
    TeRow{"nvfp4.te.4over6.mae.256.row-scaled.fast-error", Adaptive::kMae, 256, false, true, true},
    TeRow{"nvfp4.te.4over6.mse.448.row-scaled.fast-error", Adaptive::kMse, 448, false, true, true},
    TeRow{"nvfp4.te.4over6.mse.256.row-scaled.fast-error", Adaptive::kMse, 256, false, true, true},
};

constexpr Dialect Te(const TeRow& row) {
  Dialect d{.name = row.name,
            .version = kTransformerEngine,
            .source = row.row_scaled ? "common/cast/nvfp4/quantize_4over6_nvfp4.cuh, "
                                       "NVFP4BlockScaling(row_scaled_activation, nvfp4_4over6)"
                                     : "common/cast/nvfp4/quantize_4over6_nvfp4.cuh",
            .note = row.fp16 ? "Errors from FP16 products: NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH=1."
                             : "A tie of the errors keeps the scale for 6."};
  d.scale_max = row.scale_max;
  d.block_scale = BlockScale::kDivideFirst;
  d.adaptive = row.adaptive;
  d.adaptive_fp16 = row.fp16;
  d.row_scaled = row.row_scaled;
  return row.square ? Square(d) : d;
}

// mit-han-lab/fouroversix's PyTorch reference.
constexpr std::string_view kMit = "src/fouroversix/quantize/pytorch/reference.py";

constexpr Dialect Mit() {
  Dialect d{.name = "nvfp4.fouroversix",
            .version = "mit-han-lab/fouroversix 00e7033",
            .source = kMit,
            .note =
                "scale_rule static_6: one candidate. Its PyTorch code does not saturate: 7 and "
                "more, under a scale of 2^-9, become 8, which is stored as code 8; its kernels "
                "for GPUs saturate."};
  d.tensor_scale = TensorScaleRule::kEncodePlain;
  d.block_scale = BlockScale::kDivideFirst;
  d.factor = Factor::kReciprocalOpen;
  d.rounding = ElementRounding::kNearestEvenOpen;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kTensor;
  return d;
}

}  // namespace

void AddFourOverSix(std::vector<Dialect>* rows) {
  for (const TeRow& row : kTeRows) rows->push_back(Te(row));
  rows->push_back(Mit());
  constexpr std::string_view kOrder =
      "The errors are summed in index order here, in torch's order there: a near tie may differ.";
  Dialect d = Mit();
  d.scale_max = 256.0f;
  d.adaptive = Adaptive::kMse;
  rows->push_back(Renamed(d, "nvfp4.fouroversix.mse", kMit, kOrder));
  d.adaptive = Adaptive::kMae;
  rows->push_back(Renamed(d, "nvfp4.fouroversix.mae", kMit, kOrder));
  d.adaptive = Adaptive::kAbsMax;
  rows->push_back(Renamed(d, "nvfp4.fouroversix.abs-max", kMit));
}

}  // namespace fp4lab
