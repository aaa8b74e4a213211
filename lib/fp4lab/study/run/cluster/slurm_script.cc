#include "fp4lab/study/run/cluster/slurm_script.h"

#include <algorithm>
#include <limits>

#include "fp4lab/base/error.h"

namespace fp4lab::study {
namespace {

constexpr std::string_view kWordCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:/+=@-[]&|*()%";

void CheckWord(const std::string& word, const std::string& where) {
  if (word.find_first_not_of(kWordCharacters) == word.npos) return;
  throw Error(where,
              "\"" + word + "\" is not one word of letters, digits and " + "_.,:/+=@-[]&|*()%");
}

// In single quotes, for a shell.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void ReadWord(JsonObject* site, const char* key, std::string* word) {
  site->Read(key, word);
  CheckWord(*word, site->Where(key));
}

void ReadCount(JsonObject* site, const char* key, int least, int* count) {
  site->Read(key, count);
  if (*count >= least) return;
  throw Error(site->Where(key), "must be at least " + std::to_string(least));
}

}  // namespace

ClusterSite ReadClusterSite(const Json& json, const std::string& where) {
  ClusterSite site;
  JsonObject object(json, where);
  ReadWord(&object, "partition", &site.partition);
  ReadWord(&object, "account", &site.account);
  ReadWord(&object, "qos", &site.qos);
  ReadWord(&object, "constraint", &site.constraint);
  ReadWord(&object, "time", &site.time);
  ReadWord(&object, "memory", &site.memory);
  ReadCount(&object, "gpus", 0, &site.gpus);
  ReadCount(&object, "cpus", 0, &site.cpus);
  ReadCount(&object, "tasks", 0, &site.tasks);
  ReadCount(&object, "most_tasks_at_once", 0, &site.most_tasks_at_once);
  ReadCount(&object, "most_requeues", 0, &site.most_requeues);
  ReadCount(&object, "warning_seconds", 1, &site.warning_seconds);
  object.Read("modules", &site.modules);
  object.Read("setup", &site.setup);
  object.Read("options", &site.options);
  object.Read("program", &site.program);
  object.Finish();
  for (const std::string& module : site.modules) CheckWord(module, object.Where("modules"));
  for (const std::string& option : site.options) {
    CheckWord(option, object.Where("options"));
    if (option.starts_with("-")) continue;
    throw Error(object.Where("options"), "\"" + option + "\" is no option of sbatch: --NAME=VALUE");
  }
  for (const std::string& line : site.setup) {
    if (line.find_first_of("\n\r") == line.npos) continue;
    throw Error(object.Where("setup"), "holds a line break; give one line each");
  }
  return site;
}

int TasksOf(const SlurmJob& job, const ClusterSite& site) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  const auto runs = static_cast<int>(std::min(job.runs, kMost));
  return std::max(1, site.tasks > 0 ? std::min(site.tasks, runs) : runs);
}

std::string SlurmScript(const SlurmJob& job, const ClusterSite& site) {
  const std::string logs = job.folder.string();
  if (logs.find_first_not_of(kWordCharacters) != logs.npos || logs.find('%') != logs.npos) {
    throw Error(logs,
                "has a character that Slurm does not take in the name of a log; give an "
                "--out-dir without it");
  }
  const int tasks = TasksOf(job, site);
  std::string name;
  for (const char c : job.name) name += kWordCharacters.find(c) == kWordCharacters.npos ? '_' : c;
  std::string text =
      "#!/bin/bash\n# Written by `fp4lab study submit`: task I of the array trains shard I.\n";
  const auto option = [&](const std::string& line) { text += "#SBATCH " + line + "\n"; };
  option("--job-name=fp4lab-" + name);
  option("--array=1-" + std::to_string(tasks) +
         (site.most_tasks_at_once > 0 ? "%" + std::to_string(site.most_tasks_at_once) : ""));
  option("--ntasks=1");
  option("--signal=B:USR1@" + std::to_string(site.warning_seconds));
  option("--requeue");
  option("--output=" + logs + "/task-%a.log");
  option("--open-mode=append");
  const auto given = [&](const char* key, const std::string& value) {
    if (!value.empty()) option(std::string(key) + "=" + value);
  };
  const auto counted = [&](const char* key, int count) {
    if (count > 0) option(std::string(key) + "=" + std::to_string(count));
  };
  given("--partition", site.partition);
  given("--account", site.account);
  given("--qos", site.qos);
  given("--constraint", site.constraint);
  given("--time", site.time);
  given("--mem", site.memory);
  counted("--gpus-per-task", site.gpus);
  counted("--cpus-per-task", site.cpus);
  for (const std::string& more : site.options) option(more);
  text += R"(
asked=0
child=
# SIGUSR1 comes before the time is over: the program writes its checkpoints and ends.
checkpoint() { asked=1; [ -z "$child" ] || kill -USR1 "$child" 2> /dev/null; }
trap checkpoint USR1
trap '[ -z "$child" ] || kill -TERM "$child" 2> /dev/null' TERM
)";
  text += "\ncd " + Quoted(job.working_folder.string()) + " || exit 1\n";
  for (const std::string& module : site.modules) text += "module load " + Quoted(module) + "\n";
  for (const std::string& line : site.setup) text += line + "\n";
  std::string command = Quoted(site.program.empty() ? job.program.string() : site.program) +
                        " study run " + Quoted(job.study.string()) + " --out-dir " +
                        Quoted(job.out_dir.string()) + " --shard \"$SLURM_ARRAY_TASK_ID/" +
                        std::to_string(tasks) + "\"";
  for (const std::string& argument : job.arguments) command += " " + Quoted(argument);
  // A task whose time is nearly over before its program starts does not start it.
  text += "\ncode=138\nif [ \"$asked\" = 0 ]; then\n  " + command + R"( &
  child=$!
  [ "$asked" = 0 ] || checkpoint
  # A signal ends `wait` before the program has ended.
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2> /dev/null || break
  done
fi
if [ "$asked" = 1 ] && [ "$code" -ne 0 ]; then
  if [ "${SLURM_RESTART_COUNT:-0}" -lt )" +
          std::to_string(site.most_requeues) + R"( ]; then
    echo "task $SLURM_ARRAY_TASK_ID: its time is over; it is queued again and goes on from its checkpoints"
    scontrol requeue "$SLURM_JOB_ID"
    requeued=$?
    # Slurm ends the task that it queues again, with scontrol if that has not returned.
    if [ "$requeued" = 0 ] || [ "$requeued" -gt 128 ]; then exit 0; fi
  fi
  echo "task $SLURM_ARRAY_TASK_ID: its time is over and it is not queued again; submit the study again to go on" >&2
fi
exit "$code"
)";
  return text;
}

}  // namespace fp4lab::study
