// Fetches the texts of a manifest with the system's package client.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "fp4lab/data/manifest.h"

namespace fp4lab {

struct FetchOptions {
  std::filesystem::path package = {};       // a local package file; empty: download the package
  const std::atomic<bool>* stop = nullptr;  // once *stop is true, Fetch ends and leaves no files
  std::function<void(const std::string&)> note = {};  // gets one line about each step
};

enum class FetchOutcome { kAlreadyThere, kFetched, kStopped };

// Puts the documents into the data folder. `apt-get download` gets the package into a temporary
// folder: the manifest's first version, else the version that the system offers. If the system has
// no package lists, apt-get uses private lists in the temporary folder. Fetch accepts any version
// and build of the package whose texts have the manifest's hashes; it writes no document before all
// of them are verified, and then writes each file atomically. Every failure is a one-line Error
// with a remedy.
FetchOutcome Fetch(const Manifest& manifest, const FetchOptions& options);

}  // namespace fp4lab
