#include "tools/options/study_options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/study/run/rehearsal.h"
#include "tools/options/number_option.h"

namespace fp4lab::tools {

void AddStudyRunOptions(CLI::App* command, StudyRunOptions* options) {
  command->add_option("file", options->file, "Study file (studies/README.md)")->required();
  command->add_flag("--quick", options->quick,
                    "A rehearsal of the study on the CPU, in minutes: small, on synthetic text");
  command
      ->add_option("--seeds", options->seeds,
                   "Only the first so many seeds of the file; a later call goes on with the others")
      ->transform(WholeNumber(1, std::numeric_limits<int>::max()));
  command->add_option("--device", options->device, "cpu or cuda, instead of the file's \"device\"");
  command
      ->add_option("--jobs", options->jobs,
                   "Runs at a time [one a processor; on \"cuda\" one a GPU]")
      ->transform(ThreadCount());
  command
      ->add_option("--threads-per-job", options->threads_per_job,
                   "Threads that share the work of one run [the processors / jobs]")
      ->transform(ThreadCount());
}

void AddShareOptions(CLI::App* command, StudyRunOptions* options) {
  command->add_option("--shard", options->shard,
                      "I/N: of the runs, counted seed by seed and arm by arm, every Nth from the "
                      "Ith; N processes on any machines share a study so");
  command
      ->add_option("--only", options->only,
                   "Only this run: ARM:SEED, or its KEY (fp4lab study runs); repeatable")
      ->allow_extra_args(false);
}

study::Share ReadShare(const StudyRunOptions& options) {
  study::Share share{.only = options.only};
  if (options.shard.empty()) return share;
  const auto number = [&](std::string_view digits) {
    int value = 0;
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = problem == std::errc() && end == digits.data() + digits.size();
    return whole && digits[0] != '0' ? value : 0;
  };
  const std::string_view text = options.shard;
  const std::size_t slash = std::min(text.find('/'), text.size());
  share.shard = number(text.substr(0, slash));
  share.shards = slash < text.size() ? number(text.substr(slash + 1)) : 0;
  if (share.shard >= 1 && share.shard <= share.shards) return share;
  throw Error("--shard " + Printable(options.shard),
              "is not I/N with whole numbers 1 <= I <= N, as 3/8");
}

study::Study ReadStudy(const StudyRunOptions& options) {
  if (options.jobs * std::max(options.threads_per_job, 1) > kMostThreads) {
    throw Error("--jobs " + std::to_string(options.jobs) + " --threads-per-job " +
                    std::to_string(options.threads_per_job),
                "are more than " + std::to_string(kMostThreads) + " threads");
  }
  study::Study study = study::ReadStudy(options.file);
  if (options.seeds > 0) {
    const auto wanted = static_cast<std::size_t>(options.seeds);
    if (wanted > study.seeds.size()) {
      throw Error("--seeds " + std::to_string(wanted), Printable(options.file) + " has " +
                                                           std::to_string(study.seeds.size()) +
                                                           " seeds; give at most so many");
    }
    study.seeds.resize(wanted);
  }
  if (options.quick) study = study::RehearsalOf(study);
  if (!options.device.empty()) study.base.device = ReadDevice(options.device, "--device");
  study::CheckDevice(study, Printable(options.file));
  study::CheckPredictions(study, options.file);
  study::CheckStarts(study, Printable(options.file));
  return study;
}

}  // namespace fp4lab::tools
