#include "fp4lab/data/fetch.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <system_error>

#include "fp4lab/base/hash.h"
#include "fp4lab/data/r_data.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/process.h"
#include "fp4lab/io/temporary_folder.h"

namespace fp4lab {
namespace {

constexpr std::string_view kWithoutPackages =
    "use your own text file (\"text\": \"my.txt\", --text my.txt) or \"source\": \"synthetic\"";

struct Stopped {};

void Note(const FetchOptions& options, const std::string& line) {
  if (options.note) options.note(line);
}

ProcessResult Run(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                  const FetchOptions& options) try {
  ProcessResult result = RunProcess(
      arguments, {.environment = {{"LC_ALL", "C"}}, .folder = folder, .stop = options.stop});
  if (options.stop != nullptr && *options.stop) throw Stopped{};
  return result;
} catch (const Error& error) {
  throw Error(error.what(),
              "the package tools of Debian or Ubuntu are needed for this; elsewhere " +
                  std::string(kWithoutPackages));
}

// The last line that starts with "E:" (apt) or contains "error:" (dpkg), else the last line.
std::string Complaint(const std::string& text) {
  std::string last, complaint;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    if (!line.empty()) last = line;
    if (line.starts_with("E:") || line.find("error:") != line.npos) complaint = line;
    start = end + 1;
  }
  return complaint.empty() ? last : complaint;
}

std::optional<std::filesystem::path> PackageIn(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() == ".deb") return entry.path();
  }
  return std::nullopt;
}

// Options for apt-get with package lists of its own below `folder`: apt-get then needs neither root
// nor the system's lists, and does not change the system's lists.
std::vector<std::string> PrivateLists(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder / "lists/partial");
  std::filesystem::create_directories(folder / "cache/archives/partial");
  const std::filesystem::path configuration = folder / "apt.conf";
  WriteFileAtomically(configuration, "Dir::State::Lists \"" + (folder / "lists").string() +
                                         "\";\nDir::Cache \"" + (folder / "cache").string() +
                                         "\";\n#clear APT::Update::Post-Invoke;\n"
                                         "#clear APT::Update::Post-Invoke-Success;\n");
  return {"-c", configuration.string()};
}

// Runs `apt-get download`; returns its complaint, or nullopt if the package was downloaded.
std::optional<std::string> Download(const std::string& package,
                                    const std::vector<std::string>& extra,
                                    const std::filesystem::path& folder,
                                    const FetchOptions& options) {
  std::vector<std::string> arguments{"apt-get", "-q", "-o", "Acquire::Retries=2"};
  arguments.insert(arguments.end(), extra.begin(), extra.end());
  arguments.insert(arguments.end(), {"download", package});
  const ProcessResult result = Run(arguments, folder, options);
  if (result.exit_code == 0 && PackageIn(folder)) return std::nullopt;
  return Complaint(result.error + result.output);
}

std::optional<std::string> DownloadAnyVersion(const Manifest& manifest,
                                              const std::vector<std::string>& extra,
                                              const std::filesystem::path& folder,
                                              const FetchOptions& options) {
  const std::string wanted = manifest.package + "=" + manifest.versions[0].version;
  auto complaint = Download(wanted, extra, folder, options);
  const bool other_version = complaint && complaint->find("was not found") != complaint->npos;
  return other_version ? Download(manifest.package, extra, folder, options) : complaint;
}

// Whether the package lists are missing or outdated; otherwise the network is the problem.
bool IsAboutLists(const std::string& complaint) {
  return complaint.find("Failed to fetch") == complaint.npos ||
         complaint.find("404") != complaint.npos;
}

std::filesystem::path DownloadPackage(const Manifest& manifest, const TemporaryFolder& work,
                                      const FetchOptions& options) {
  Note(options, "downloading the package " + manifest.package + " with apt-get");
  auto complaint = DownloadAnyVersion(manifest, {}, work.path(), options);
  if (complaint && IsAboutLists(*complaint)) {
    Note(options, "apt-get says: " + *complaint + "; trying with fresh package lists");
    const auto lists = PrivateLists(work.path());
    std::vector<std::string> update{"apt-get", "-q", "-o", "Acquire::Retries=1"};
    update.insert(update.end(), lists.begin(), lists.end());
    update.push_back("update");
    Run(update, work.path(), options);  // a failure shows in the download below
    complaint = DownloadAnyVersion(manifest, lists, work.path(), options);
  }
  if (!complaint) return *PackageIn(work.path());
  throw Error(manifest.name, "apt-get cannot download " + manifest.package + " (" + *complaint +
                                 "); is there a network? Without one use --package FILE.deb, or " +
                                 std::string(kWithoutPackages));
}

// The bytes of the manifest's file inside the package.
std::string FileInPackage(const Manifest& manifest, const std::filesystem::path& package,
                          const TemporaryFolder& work, const FetchOptions& options) {
  const std::filesystem::path inside = work.path() / "inside";
  const auto absolute = std::filesystem::absolute(package);
  const ProcessResult result =
      Run({"dpkg-deb", "-x", absolute.string(), inside.string()}, {}, options);
  if (result.exit_code != 0) {
    throw Error(package.string(),
                "is not a complete Debian package (" + Complaint(result.error) + "); get it again");
  }
  const std::filesystem::path file = inside / manifest.file;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(file))) {
    throw Error(package.string(),
                "does not hold " + manifest.file + ": is it " + manifest.package + "?");
  }
  return ReadFile(file);
}

// The texts of the manifest's documents, found among the texts of the file by their hashes.
std::vector<std::string> Documents(const Manifest& manifest, const std::string& bytes,
                                   const std::string& where) {
  std::map<std::string, std::string> found;  // by hash
  for (const std::string& record : ReadLazyLoadRecords(bytes, where)) {
    std::string text = LinesOfCharacterVector(record, where);
    std::string hash = Sha256(text);
    found.emplace(std::move(hash), std::move(text));
  }
  std::vector<std::string> texts;
  for (const Document& document : manifest.documents) {
    const auto text = found.find(document.sha256);
    if (text == found.end()) {
      throw Error(where, "none of its " + std::to_string(found.size()) +
                             " texts is the manifest's " + document.name + " (SHA-256 " +
                             document.sha256.substr(0, 12) + "...); refused");
    }
    texts.push_back(text->second);
  }
  CheckTexts(manifest, texts, where);
  return texts;
}

void MakeWritable(const std::filesystem::path& folder) {
  std::error_code status;
  std::filesystem::create_directories(folder, status);
  if (!status && ::access(folder.c_str(), W_OK | X_OK) != 0) {
    status.assign(errno, std::generic_category());
  }
  if (!status) return;
  throw Error(folder.string(), "cannot be written: " + status.message() +
                                   "; set FP4LAB_DATA_DIR to a folder that you can write to");
}

void FetchTexts(const Manifest& manifest, const FetchOptions& options) {
  const TemporaryFolder work;
  const std::filesystem::path package =
      options.package.empty() ? DownloadPackage(manifest, work, options) : options.package;
  const std::string where =
      package.filename().string() + " (SHA-256 " + Sha256OfFile(package).substr(0, 12) + "...)";
  const std::string file = FileInPackage(manifest, package, work, options);
  const std::vector<std::string> texts = Documents(manifest, file, where);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    WriteFileAtomically(DocumentPath(manifest, manifest.documents[i]), texts[i]);
  }
}

}  // namespace

FetchOutcome Fetch(const Manifest& manifest, const FetchOptions& options) {
  if (StateOf(manifest) == DocumentState::kVerified) return FetchOutcome::kAlreadyThere;
  const std::filesystem::path folder = DataFolder() / manifest.name;
  MakeWritable(folder);  // fails before the download, not after it
  const auto tidy = [&folder] {
    std::error_code ignored;
    std::filesystem::remove(folder, ignored);  // only if it is empty
  };
  try {
    FetchTexts(manifest, options);
  } catch (const Stopped&) {
    tidy();
    return FetchOutcome::kStopped;
  } catch (...) {
    tidy();
    throw;
  }
  return FetchOutcome::kFetched;
}

}  // namespace fp4lab
