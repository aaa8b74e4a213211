#include "fp4lab/train/processes/processes.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <limits>
#include <thread>

#include "fp4lab/train/engine.h"
#include "fp4lab/train/model/shapes.h"
#include "tests/support/catch.h"
#include "tests/train/tiny_run.h"

namespace fp4lab {
namespace {

// What threads that stand for processes see of each other.
struct Crowd {
  explicit Crowd(int size)
      : all(size), floats(static_cast<std::size_t>(size)), doubles(floats.size()) {}
  std::barrier<> all;
  std::vector<std::span<float>> floats;
  std::vector<std::span<const double>> doubles;
};

class Member final : public Processes {
 public:
  Member(Crowd* crowd, int rank) : crowd_(crowd), rank_(rank) {}

  int Rank() const override { return rank_; }
  int Size() const override { return static_cast<int>(crowd_->floats.size()); }
  void AddInOrder(std::span<const float> x, std::span<float> total) override {
    std::vector<float> copy(x.begin(), x.end());
    const Slice slice = SlicesOf(total.size(), Size())[static_cast<std::size_t>(rank_)];
    Show(copy, [&] {
      for (const std::span<float> given : crowd_->floats) {
        AddTo(given.subspan(slice.first, slice.size()), total.subspan(slice.first, slice.size()));
      }
    });
  }
  void ShareSlices(std::span<const Slice> slices, std::span<float> total) override {
    std::vector<float> all(total.size());
    Show(total, [&] {
      for (std::size_t r = 0; r < slices.size(); ++r) {
        const std::span<float> from = crowd_->floats[r];
        std::copy_n(from.data() + slices[r].first, slices[r].size(), all.data() + slices[r].first);
      }
    });
    std::copy(all.begin(), all.end(), total.begin());
  }
  std::vector<double> Gather(std::span<const double> own) override {
    crowd_->doubles[static_cast<std::size_t>(rank_)] = own;
    crowd_->all.arrive_and_wait();
    std::vector<double> all;
    for (const auto given : crowd_->doubles) all.insert(all.end(), given.begin(), given.end());
    crowd_->all.arrive_and_wait();
    return all;
  }
  void Max(std::span<float> x) override {
    std::vector<float> all(x.begin(), x.end());
    Show(x, [&] {
      for (const std::span<float> given : crowd_->floats) {
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::max(all[i], given[i]);
      }
    });
    std::copy(all.begin(), all.end(), x.begin());
  }
  bool Any(bool said) override {
    const std::vector<double> all = Gather(std::vector<double>{said ? 1.0 : 0.0});
    return std::count(all.begin(), all.end(), 1.0) > 0;
  }

 private:
  // `look` while all members show their x.
  template <class Look>
  void Show(std::span<float> x, const Look& look) {
    crowd_->floats[static_cast<std::size_t>(rank_)] = x;
    crowd_->all.arrive_and_wait();
    look();
    crowd_->all.arrive_and_wait();
  }

  Crowd* crowd_;
  int rank_;
};

using Work = std::function<void(Trainer* trainer)>;

// The state of rank 0 after `work`, which `size` threads do as if they were processes.
std::vector<std::byte> StateOf(const TrainConfig& config, int size, const Work& work,
                               bool shards_optimizer = false) {
  Crowd crowd(size);
  std::vector<std::vector<std::byte>> states(static_cast<std::size_t>(size));
  std::atomic<int> sharding = 0;
  const Corpus& corpus = TinyText();
  const auto run = [&](int rank) {
    SetThreads(1);
    Trainer trainer(config, corpus, "run.json", [&] {
      return MakeCpuEngine(config, std::make_unique<Member>(&crowd, rank), shards_optimizer);
    });
    sharding += trainer.ShardsStates() ? 1 : 0;
    work(&trainer);
    states[static_cast<std::size_t>(rank)] = trainer.SaveState();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (const auto& state : states) CHECK((state == states.front()));
  CHECK(sharding == (shards_optimizer && size > 1 ? size : 0));
  return states.front();
}

TrainConfig FourParts(const Json& recipe, const Json& members = Json::object()) {
  Json model = {{"d_model", 32}, {"ffn", 64}, {"sequence", 32}};
  model.update(members);
  TrainConfig config = TinyRun(recipe, model);
  config.micro_batches = 4;
  return config;
}

TEST_CASE("Slices of processes are all elements, one after the other", "[train]") {
  for (const std::size_t count : {0, 1, 2, 3, 7, 8, 9, 100}) {
    for (const int size : {1, 2, 3, 4, 7}) {
      const std::vector<Slice> slices = SlicesOf(count, size);
      REQUIRE(slices.size() == static_cast<std::size_t>(size));
      std::size_t end = 0;
      for (const Slice& slice : slices) {
        CHECK(slice.first == end);
        CHECK(slice.size() <= slices.front().size());
        end = slice.end;
      }
      CHECK(end == count);
    }
  }
}

TEST_CASE("Processes that share the micro-batches of a step have the bits of one", "[train]") {
  for (const char* recipe : {"te_nvfp4", "tetrajet", "te_fp8_delayedscaling"}) {
    CAPTURE(recipe);
    const TrainConfig config = FourParts(recipe);
    const auto work = [](Trainer* trainer) {
      for (int i = 0; i < 3; ++i) trainer->Step(kTinyRate);
      trainer->Diagnose();  // each process alone
      trainer->Step(kTinyRate);
    };
    const std::vector<std::byte> whole = StateOf(config, 1, work);
    for (const int size : {2, 4}) CHECK((StateOf(config, size, work) == whole));
  }
}

TEST_CASE("Processes that share the optimizer's states have the bits of one", "[train]") {
  const Json mixture = {{"parts", {"attention", "moe"}},
                        {"moe", {{"experts", 4}, {"ffn", 32}, {"top_k", 2}, {"bias_rate", 0.01}}}};
  for (const char* optimizer : {"adamw", "muon"}) {
    CAPTURE(optimizer);
    TrainConfig config = FourParts("te_nvfp4", mixture);
    config.optimizer.name = optimizer;
    config.model.outliers.gain = 64.0f;  // planted in parameters and states
    config.model.outliers.places = {"norm"};
    config.model.outliers.step = 2;
    const auto steps = [](std::int64_t end) {
      return [end](Trainer* trainer) {
        while (trainer->Steps() < end) trainer->Step(kTinyRate);
      };
    };
    const std::vector<std::byte> whole = StateOf(config, 1, steps(4));
    for (const int size : {2, 4}) {
      const std::vector<std::byte> part = StateOf(config, size, steps(3), true);
      const auto goes_on = [&](Trainer* trainer) {
        trainer->LoadState(part, "part");
        steps(4)(trainer);
      };
      CHECK((StateOf(config, size, steps(4), true) == whole));
      CHECK((StateOf(config, 1, goes_on) == whole));
      CHECK((StateOf(config, 6 - size, goes_on, true) == whole));
    }
  }
}

TEST_CASE("A step that processes skip or cannot make leaves the state of one process", "[train]") {
  TrainConfig config = FourParts("te_nvfp4");
  config.optimizer.loss_scaling = {.kind = LossScalingKind::kDynamic, .scale = 16777216.0f};
  const ParameterLayout layout = MakeLayout(config.model);
  std::atomic<int> skipped = 0, broken = 0;
  const auto work = [&](float factor) {
    return [&, factor](Trainer* trainer) {
      trainer->Step(kTinyRate);
      std::vector<float> numbers = trainer->Numbers();
      for (std::size_t i = 0; i < layout.head.size(); ++i) {
        numbers[layout.head.offset + i] *= factor;
      }
      for (std::size_t i = 0; i < layout.final_gain.size(); ++i) {
        numbers[layout.final_gain.offset + i] /= factor;
      }
      trainer->Return(1, numbers);
      const StepResult result = trainer->Step(kTinyRate);
      skipped += result.skipped ? 1 : 0;
      broken += result.non_finite && trainer->Any(true) ? 1 : 0;
    };
  };
  for (const float factor : {0x1p+118f, std::numeric_limits<float>::infinity()}) {
    const std::vector<std::byte> whole = StateOf(config, 1, work(factor));
    for (const int size : {2, 4}) CHECK((StateOf(config, size, work(factor)) == whole));
  }
  CHECK(skipped == 1 + 2 + 4);
  CHECK(broken == 1 + 2 + 4);
}

}  // namespace
}  // namespace fp4lab
