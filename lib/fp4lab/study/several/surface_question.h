// What the commands of several studies ask of a surface.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace fp4lab::study {

struct SurfaceQuestion {
  std::string reference;               // of the gaps
  std::array<std::string, 2> formats;  // the one at the lower loss, the one at the higher loss
  std::string null;                    // a twin of the reference; empty: none
  std::vector<std::string> factors;    // 3 names, or none
  std::vector<std::string> corners;    // 8 arms, the last factor changing fastest; or none
  std::vector<std::string> sizes;      // studies to set beside each other (sizes.h), smallest first
  double wanted = 0.08;                // the half-width of ln r that "seeds_that_suffice" meets
};

}  // namespace fp4lab::study
