// The manifests of data/, compiled in so that an installed program needs no files (CMakeLists.txt
// makes the source file from data/manifests.cc.in).
#pragma once

#include <string_view>
#include <vector>

namespace fp4lab {

struct EmbeddedManifest {
  std::string_view file, json;
};

std::vector<EmbeddedManifest> EmbeddedManifests();

}  // namespace fp4lab
