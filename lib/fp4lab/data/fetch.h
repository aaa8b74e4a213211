// Gets the texts of a manifest through the system's own package client.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "fp4lab/data/manifest.h"

namespace fp4lab {

struct FetchOptions {
  std::filesystem::path package = {};       // a package file that is already here: no download
  const std::atomic<bool>* stop = nullptr;  // ends it early, leaving nothing behind
  std::function<void(const std::string&)> note = {};  // one line about what is being done
};

enum class FetchOutcome { kAlreadyThere, kFetched, kStopped };

// Puts the documents into the data folder. The package comes from `apt-get download` in a temporary
// folder: the manifest's first version, else the one that the system offers; where the system has
// no package lists, with lists of its own in that folder. Any version and build of the package will
// do whose texts have the manifest's hashes; nothing is written before all of them are verified,
// and then each file atomically. Error, in one line with a remedy, for everything that can fail.
FetchOutcome Fetch(const Manifest& manifest, const FetchOptions& options);

}  // namespace fp4lab
