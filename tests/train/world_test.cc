#include "fp4lab/train/world.h"

#include <map>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/train/engine.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::map<std::string, std::string> environment;

World WorldOf(std::map<std::string, std::string> variables) {
  environment = std::move(variables);
  return ReadWorld([](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST_CASE("A process without a launcher is alone", "[train]") {
  CHECK(WorldOf({}) == World{});
  CHECK(WorldOf({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).size == 1);  // a batch script
}

TEST_CASE("Launchers say which of how many processes this is", "[train]") {
  CHECK(WorldOf({{"RANK", "3"},
                 {"WORLD_SIZE", "8"},
                 {"LOCAL_RANK", "1"},
                 {"MASTER_ADDR", "node7"},
                 {"MASTER_PORT", "1234"}}) == World{3, 8, 1, "node7", 1234});
  CHECK(WorldOf({{"OMPI_COMM_WORLD_RANK", "1"},
                 {"OMPI_COMM_WORLD_SIZE", "2"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}) == World{1, 2, 0, "127.0.0.1", 29400});
  CHECK(WorldOf({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}) == World{1, 2, 1, "127.0.0.1", 29400});
  CHECK(WorldOf({{"SLURM_PROCID", "5"},
                 {"SLURM_STEP_NUM_TASKS", "16"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}}) == World{5, 16, 1, "10.0.0.9", 29400});
}

TEST_CASE("Processes of Slurm meet on the first host of their list", "[train]") {
  const auto address = [](const char* hosts) {
    return WorldOf({{"SLURM_PROCID", "0"},
                    {"SLURM_STEP_NUM_TASKS", "2"},
                    {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"},
                    {"SLURM_STEP_NODELIST", hosts}})
        .address;
  };
  CHECK(address("login1") == "login1");
  CHECK(address("a7,b[1-2]") == "a7");
  CHECK(address("gpu[007-012,015],login1") == "gpu007");
  CHECK(address("gpu[3,5]") == "gpu3");
  CHECK(address("r[1-2]-ib,x[3-4]") == "r1-ib");
}

TEST_CASE("The port that torchrun's agent listens at is left to it", "[train]") {
  const auto port = [](const char* master, const char* agent) {
    return WorldOf({{"RANK", "0"},
                    {"WORLD_SIZE", "2"},
                    {"MASTER_PORT", master},
                    {"TORCHELASTIC_USE_AGENT_STORE", agent}})
        .port;
  };
  CHECK(port("29500", "True") == 29501);
  CHECK(port("65535", "True") == 65534);
  CHECK(port("29500", "False") == 29500);
}

TEST_CASE("Invalid launcher variables are refused by name", "[train]") {
  CHECK_THROWS_WITH(WorldOf({{"RANK", "two"}, {"WORLD_SIZE", "8"}}),
                    "$RANK: \"two\" is not a number from 0 to 7");
  CHECK_THROWS_WITH(WorldOf({{"RANK", "8"}, {"WORLD_SIZE", "8"}}),
                    "$RANK: \"8\" is not a number from 0 to 7");
  CHECK_THROWS_WITH(WorldOf({{"MASTER_PORT", "0"}}),
                    "$MASTER_PORT: \"0\" is not a number from 1 to 65535");
}

TEST_CASE("A world's token is FP4LAB_TOKEN or the launcher's name of the job", "[train]") {
  const std::map<std::string, std::string> slurm = {{"SLURM_PROCID", "0"},
                                                    {"SLURM_STEP_NUM_TASKS", "2"},
                                                    {"SLURM_JOB_ID", "71"},
                                                    {"SLURM_STEP_ID", "4"}};
  CHECK(WorldOf(slurm).token == "71.4.");
  CHECK(WorldOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}}).token ==
        "none.");
  auto with_token = slurm;
  with_token["FP4LAB_TOKEN"] = "secret";
  CHECK(WorldOf(with_token).token == "secret");
}

TEST_CASE("Processes that differ in anything that a run depends on are told apart", "[train]") {
  const Json identity = {{"version", "1"}, {"recipe", {{"name", "te_nvfp4"}}}};
  const Json first = IntroductionOf({.rank = 0, .size = 2, .identity = identity});
  Json other = IntroductionOf({.rank = 1, .size = 2, .identity = identity});
  CHECK(WhyApart(first, other).empty());
  const std::string host = first.at("host");
  other["host"] = "node7";
  other["identity"]["recipe"]["name"] = "mxfp4";
  CHECK(WhyApart(first, other) ==
        "process 1 of 2 on node7 (there) cannot train with process 0 of 2 "
        "on " +
            host +
            " (here): recipe/name: \"te_nvfp4\" here, "
            "\"mxfp4\" there");
  other["size"] = 3;
  CHECK(WhyApart(first, other) ==
        "process 1 of 3 on node7 (there) cannot train with process 0 of 2 "
        "on " +
            host + " (here): the numbers of processes differ");
  CHECK_THROWS_WITH(WhyApart(first, Json{{"rank", "one"}}),
                    "the introduction of a process: is not one of fp4lab");
}

TEST_CASE("Several processes on CPUs need MPI, and a multiple of micro-batches", "[train]") {
  const TrainConfig config = ReadTrainConfig(Json::object(), "run.json");
  const std::string error =
      ErrorOf([&] { MakeEngine(config, "run.json#/device", {.rank = 0, .size = 2}); });
  const std::string without =
      "run.json#/device: \"cpu\" trains in one process, and a launcher started 2; use threads, a "
      "build with MPI (cmake -DFP4LAB_MPI=ON), or \"cuda\"";
  const std::string with =
      "run.json#/device: \"micro_batches\" 1 is not a multiple of the 2 processes";
  CHECK((error == without || error == with));
}

}  // namespace
}  // namespace fp4lab
