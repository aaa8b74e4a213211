// The job script of a study on a cluster, as text, and its submission to a program in sbatch's
// place.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/process.h"
#include "fp4lab/study/run/cluster/slurm_script.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

SlurmJob Job() {
  return {.name = "my study",
          .program = "/opt/it's/fp4lab",
          .study = "/data/out/submit/study.json",
          .out_dir = "/data/out",
          .folder = "/data/out/submit",
          .working_folder = "/home/me/a b",
          .runs = 6,
          .arguments = {"--jobs", "2"}};
}

ClusterSite Site(const std::string& json) {
  return ReadClusterSite(Json::parse(json), "site.json");
}

std::string SiteError(const std::string& json) {
  return ErrorOf([&] { Site(json); });
}

TEST_CASE("A job script has the options of its site, and each value stays one word", "[cluster]") {
  const std::string script =
      SlurmScript(Job(), Site(R"({"partition": "gpu", "account": "me-1", "qos": "long",
        "constraint": "h100&nvlink", "time": "1-04:00:00", "memory": "16G", "gpus": 2, "cpus": 8,
        "tasks": 4, "most_tasks_at_once": 3, "warning_seconds": 60, "most_requeues": 7,
        "modules": ["cuda/13.0"], "setup": ["export A='b c'"], "options": ["--mail-type=END"]})"));
  for (const char* line :
       {"#!/bin/bash\n",
        "\n#SBATCH --job-name=fp4lab-my_study\n",
        "\n#SBATCH --array=1-4%3\n",
        "\n#SBATCH --signal=B:USR1@60\n",
        "\n#SBATCH --requeue\n",
        "\n#SBATCH --open-mode=append\n",
        "\n#SBATCH --output=/data/out/submit/task-%a.log\n",
        "\n#SBATCH --partition=gpu\n",
        "\n#SBATCH --account=me-1\n",
        "\n#SBATCH --qos=long\n",
        "\n#SBATCH --constraint=h100&nvlink\n",
        "\n#SBATCH --time=1-04:00:00\n",
        "\n#SBATCH --mem=16G\n",
        "\n#SBATCH --gpus-per-task=2\n",
        "\n#SBATCH --cpus-per-task=8\n",
        "\n#SBATCH --mail-type=END\n",
        "\ncd '/home/me/a b' || exit 1\n",
        "\nmodule load 'cuda/13.0'\n",
        "\nexport A='b c'\n",
        "-lt 7 ]",
        "\n  '/opt/it'\\''s/fp4lab' study run '/data/out/submit/study.json' --out-dir '/data/out' "
        "--shard \"$SLURM_ARRAY_TASK_ID/4\" '--jobs' '2' &\n"}) {
    CHECK_THAT(script, ContainsSubstring(line));
  }
  const std::string plain = SlurmScript(Job(), Site("{}"));
  CHECK_THAT(plain, ContainsSubstring("\n#SBATCH --array=1-6\n"));
  CHECK_THAT(plain, !ContainsSubstring("--partition") && !ContainsSubstring("--gpus"));
  CHECK(TasksOf(Job(), Site(R"({"tasks": 100})")) == 6);
}

TEST_CASE("A site file is read strictly", "[cluster]") {
  CHECK_THAT(SiteError(R"({"partitoin": "gpu"})"), ContainsSubstring("site.json#/partitoin"));
  CHECK_THAT(SiteError(R"({"partition": "gpu\n#SBATCH --x"})"),
             ContainsSubstring("site.json#/partition: ") && ContainsSubstring("is not one word"));
  CHECK_THAT(SiteError(R"({"modules": ["a; rm x"]})"), ContainsSubstring("site.json#/modules: "));
  CHECK_THAT(SiteError(R"({"setup": ["a\nb"]})"), ContainsSubstring("site.json#/setup: "));
  CHECK_THAT(SiteError(R"({"options": ["x"]})"), ContainsSubstring("is no option of sbatch"));
  CHECK_THAT(SiteError(R"({"gpus": -1})"),
             ContainsSubstring("site.json#/gpus: must be at least 0"));
  CHECK_THAT(SiteError(R"({"warning_seconds": 0})"), ContainsSubstring("must be at least 1"));
  SlurmJob job = Job();
  job.folder = "/data/100%/submit";
  CHECK_THAT(ErrorOf([&] { SlurmScript(job, {}); }), ContainsSubstring("--out-dir"));
}

// A folder with the study, a site file and scripts in the place of Slurm's programs.
class FakeSlurm {
 public:
  FakeSlurm() : folder_("slurm") {
    WriteFileAtomically(folder_.Path() / "tiny.json", TinyStudyJson().dump());
    WriteFileAtomically(folder_.Path() / "site.json", std::string_view("{\"tasks\": 2}"));
  }
  void Program(const std::string& name, const std::string& text) {
    const fs::path path = folder_.Path() / name;
    WriteFileAtomically(path, "#!/bin/bash\n" + text);
    fs::permissions(path, fs::perms(0755));
  }
  ProcessResult Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), std::getenv("FP4LAB_PROGRAM"));
    return RunProcess(arguments, {.environment = Environment(), .folder = folder_.Path()});
  }
  ProcessResult RunTask(int task, int restarts = 0) const {
    auto environment = Environment();
    environment.emplace_back("SLURM_ARRAY_TASK_ID", std::to_string(task));
    environment.emplace_back("SLURM_RESTART_COUNT", std::to_string(restarts));
    environment.emplace_back("SLURM_JOB_ID", "77");
    return RunProcess({"/bin/bash", Path("out/submit/job.sh")}, {.environment = environment});
  }
  std::string Path(const std::string& name) const { return (folder_.Path() / name).string(); }

 private:
  std::vector<std::pair<std::string, std::string>> Environment() const {
    return {{"PATH", folder_.Path().string() + ":" + std::getenv("PATH")}};
  }
  TestFolder folder_;
};

TEST_CASE("study submit writes the script and the study, and its tasks train the study",
          "[cluster]") {
  FakeSlurm slurm;
  const std::vector<std::string> submit = {"study",     "submit",    "tiny.json", "--site",
                                           "site.json", "--out-dir", "out"};
  std::vector<std::string> dry = submit;
  dry.push_back("--dry-run");
  const ProcessResult text = slurm.Run(dry);
  REQUIRE(text.exit_code == 0);
  CHECK_FALSE(Exists(slurm.Path("out")));
  slurm.Program("sbatch", "echo \"error: invalid partition\" >&2\nexit 1\n");
  const ProcessResult refused = slurm.Run(submit);
  CHECK(refused.exit_code == 1);
  CHECK_THAT(refused.error, ContainsSubstring("exit code 1: error: invalid partition"));
  slurm.Program("sbatch", "echo \"$@\" > \"${0%/*}/called\"\necho '4711;cluster'\n");
  const ProcessResult sent = slurm.Run(submit);
  INFO(sent.error);
  REQUIRE(sent.exit_code == 0);
  CHECK_THAT(sent.output, ContainsSubstring("job 4711: 2 tasks for 4 runs; then: "));
  CHECK(ReadFile(slurm.Path("called")) == "--parsable " + slurm.Path("out/submit/job.sh") + "\n");
  CHECK(ReadFile(slurm.Path("out/submit/job.sh")) == text.output);
  fs::remove(slurm.Path("tiny.json"));  // the tasks have the study as it was
  for (int task = 1; task <= 2; ++task) {
    const ProcessResult ran = slurm.RunTask(task);
    INFO(ran.error);
    CHECK(ran.exit_code == 0);
  }
  CHECK(ReadJsonFile(slurm.Path("out/results.json")).at("runs").size() == 4);
}

TEST_CASE("A task whose time is over is queued again, up to the site's number", "[cluster]") {
  FakeSlurm slurm;
  Json json = TinyStudyJson();
  json["budgets"] = {4000 * 128};
  WriteFileAtomically(slurm.Path("tiny.json"), json.dump());
  WriteFileAtomically(slurm.Path("site.json"), std::string_view(R"({"tasks": 1, "most_requeues": 2,
    "setup": ["(while [ ! -e out/runs ]; do sleep 0.02; done; kill -USR1 $$) &"]})"));
  slurm.Program("sbatch", "echo 1\n");
  slurm.Program("scontrol", "echo \"$@\" >> \"${0%/*}/called\"\n");
  REQUIRE(slurm
              .Run({"study", "submit", "tiny.json", "--site", "site.json", "--out-dir", "out",
                    "--threads-per-job", "1"})
              .exit_code == 0);
  const ProcessResult first = slurm.RunTask(1, 1);
  INFO(first.output << first.error);
  CHECK(first.exit_code == 0);
  CHECK(ReadFile(slurm.Path("called")) == "requeue 77\n");
  CHECK_THAT(first.error, ContainsSubstring("interrupted; every run has its checkpoint"));
  slurm.Program("scontrol", "kill -TERM $$\n");  // Slurm ends the task with all of its processes
  fs::remove_all(slurm.Path("out/runs"));
  const ProcessResult ended = slurm.RunTask(1, 1);
  CHECK(ended.exit_code == 0);
  CHECK_THAT(ended.error, !ContainsSubstring("not queued again"));
  slurm.Program("scontrol", "exit 1\n");  // a site that does not allow it
  fs::remove_all(slurm.Path("out/runs"));
  CHECK_THAT(slurm.RunTask(1, 1).error, ContainsSubstring("not queued again"));
  fs::remove_all(slurm.Path("out/runs"));
  const ProcessResult last = slurm.RunTask(1, 2);
  CHECK(last.exit_code == 128 + SIGUSR1);
  CHECK_THAT(last.error, ContainsSubstring("submit the study again"));
  CHECK(ReadFile(slurm.Path("called")) == "requeue 77\n");
}

}  // namespace
}  // namespace fp4lab::study
