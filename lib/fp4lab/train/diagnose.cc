#include "fp4lab/train/diagnose.h"

#include <algorithm>

#include "fp4lab/dialect/statistics.h"
#include "fp4lab/train/dialect_json.h"

namespace fp4lab {

TensorStatistics MeasureOperand(std::string name, MatrixView<const float> x, const Dialect& dialect,
                                const DialectOptions& options) {
  constexpr double kMostDecibel = 3000.0;  // of an exact copy: JSON has no infinity
  const QuantizationStatistics measured = MeasureQuantization(dialect, x, options);
  const Json format = ToJson(dialect);
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
