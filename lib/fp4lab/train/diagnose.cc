#include "fp4lab/train/diagnose.h"

#include <algorithm>

#include "fp4lab/block/statistics.h"
#include "fp4lab/train/recipe_json.h"

namespace fp4lab {

TensorStatistics MeasureOperand(std::string name, MatrixView<const float> x,
                                const QuantizeOptions& options) {
  constexpr double kMostDecibel = 3000.0;  // of an exact copy: JSON has no infinity
  const QuantizationStatistics measured = MeasureQuantization(x, options);
  const Json format = ToJson(options.format);
  TensorStatistics s;
  s.name = std::move(name);
  s.format = format.is_string() ? format.get<std::string>() : format.dump();
  s.amax = measured.amax;
  s.underflow_percent = measured.underflow_percent;
  s.clip_percent = measured.clip_percent;
  s.sqnr_db = std::min(measured.sqnr_db, kMostDecibel);
  return s;
}

}  // namespace fp4lab
