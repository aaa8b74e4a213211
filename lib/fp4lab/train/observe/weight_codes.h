// The codes of the quantized weights at the last two observations of a run, which tell how many
// weights oscillate between two codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/nn/linear_recipe.h"

namespace fp4lab {

// Of the sampled weights of a linear, in percent; NaN before there are enough observations.
struct CodeChanges {
  double flips_percent = 0.0;    // the code differs from that of the observation before
  double returns_percent = 0.0;  // and is that of the observation before it
};

// At most this many weights of a linear are sampled, evenly spaced in row-major order.
inline constexpr std::size_t kMostSampledCodes = 65'536;

class WeightCodes {
 public:
  // Compares the codes of a linear's fprop weight with the codes of the observations before, and
  // keeps them. -0 counts as +0. Under another dialect or shape than before, a linear starts
  // afresh.
  CodeChanges Observe(const std::string& linear, const ObservedOperand& weight);

  friend bool operator==(const WeightCodes&, const WeightCodes&) = default;

  // An object with a member a linear: codes as hexadecimal digits. Read gives the same codes back
  // and throws Error at `where` for any other JSON.
  Json ToJson() const;
  static WeightCodes Read(const Json& json, const std::string& where);

 private:
  struct Linear {
    std::string format;                      // the dialect, and the tensor's shape
    std::vector<std::uint8_t> last, before;  // empty: not observed

    friend bool operator==(const Linear&, const Linear&) = default;
  };
  std::map<std::string, Linear> linears_;
};

}  // namespace fp4lab
