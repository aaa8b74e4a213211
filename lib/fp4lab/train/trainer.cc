#include "fp4lab/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/limits.h"
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/train/batch.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/corpus_fit.h"
#include "fp4lab/train/engine.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/model/outliers.h"
#include "fp4lab/train/model/streams.h"
#include "fp4lab/train/observe/observe.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/start/start.h"
#include "fp4lab/train/start/teacher.h"

namespace fp4lab {
namespace {

float InitialLossScale(const OptimizerConfig& config) {
  return config.loss_scaling.kind == LossScalingKind::kNone ? 1.0f : config.loss_scaling.scale;
}

// The given numbers, and zeros after them.
FloatSource NumbersBeginningWith(std::span<const float> given) {
  return [given](std::size_t first, std::span<float> to) {
    const std::span<const float> rest = given.subspan(std::min(first, given.size()));
    const auto end = std::copy_n(rest.begin(), std::min(rest.size(), to.size()), to.begin());
    std::fill(end, to.end(), 0.0f);
  };
}

}  // namespace

struct Trainer::State {
  TrainConfig config;
  const Corpus* corpus;
  DataOrder order;
  ParameterLayout layout;
  std::unique_ptr<Engine> engine;
  std::int64_t steps = 0;
  std::string start_sha256 = {};               // of config.start; empty: none
  std::unique_ptr<Teacher> teacher = {};       // null: none
  Json teacher_identity = {};                  // TeacherIdentity
  std::vector<std::uint16_t> inputs, targets;  // of one step
  std::vector<double> row_loss;                // of one micro-batch
  // The window losses of the present weights. If the forward pass is not quantized, both precisions
  // share them.
  struct Evaluated {
    bool high_precision = false;
    std::vector<double> losses;  // empty: none
  };
  Evaluated evaluated;
  const Recipe* recipe = &config.recipe;  // the recipe that the engine computes with
  bool times_steps = false;
  // The scale of the loss, and the good steps since it changed: numbers of the run if it is
  // dynamic.
  std::array<float, 2> loss_scale = {InitialLossScale(config.optimizer), 0.0f};

  State(const TrainConfig& c, const Corpus& data, std::unique_ptr<Engine> computes)
      : config(c),
        corpus(&data),
        order{c.data.order_seed.value_or(c.seed), data.train.size(),
              static_cast<std::uint64_t>(c.model.sequence)},
        layout(MakeLayout(c.model)),
        engine(std::move(computes)),
        inputs(static_cast<std::size_t>(TokensPerStep(c))),
        targets(inputs.size()),
        row_loss(MicroBatch() * order.sequence) {}

  std::size_t MicroBatch() const {
    return static_cast<std::size_t>(config.batch / config.micro_batches);
  }
  bool ScalesDynamically() const {
    return config.optimizer.loss_scaling.kind == LossScalingKind::kDynamic;
  }
  std::span<const float> LossScaleNumbers() const {
    return std::span(loss_scale).first(ScalesDynamically() ? loss_scale.size() : 0);
  }
  // Moves the dynamic scale after a step.
  void EndStep(bool good);
  std::size_t StatesOfOptimizer() const { return OptimizerOf(config.optimizer).states; }
  // Floats of weights, states of the optimizer, amax histories and dynamic loss scaling.
  std::size_t NumbersOfStep() const {
    return (1 + StatesOfOptimizer()) * layout.total +
           AmaxHistoryFloats(config.model, config.recipe) + LossScaleNumbers().size();
  }
  // The numbers of a checkpoint's payload, in its order. Every process must call it where they
  // share the optimizer's states.
  void ReadNumbers(const FloatSink& take) const;
  std::vector<float> Numbers() const;
  // Loads the first `count` sequences of the step about to be made.
  void LoadBatch(std::size_t count);
  // Losses and gradients of the first micro-batches of the step about to be made.
  StepSums Gradients(Pass pass, int micro_batches);
  void Update(double learning_rate, double norm);
  StepResult Step(double learning_rate);
  // Goes on with the numbers of a checkpoint's payload after `done` steps.
  void Return(std::int64_t done, const FloatSource& numbers);
  // Takes the weights of config.start; everything else is as Engine::Initialize leaves it.
  void Begin(const std::vector<float>& weights, const std::string& where);
  // Plants the model's outliers if they are due after the steps that are done.
  void Plant();
  // Repeats the step with an inspector that looks at every tensor.
  NonFinite Locate();
  // Mean losses of the windows of a text, in order.
  std::vector<double> WindowLosses(std::span<const std::uint16_t> text, bool high_precision);
  // Whether the recipe in use quantizes anything in the forward pass.
  bool QuantizesForward() const;
  const std::vector<double>& EvaluatedLosses(EvaluationPrecision precision);
  Json Identity() const;
};

void Trainer::State::LoadBatch(std::size_t count) {
  const std::size_t tokens = count * order.sequence;
  const auto batch = static_cast<std::uint64_t>(config.batch);
  CopySequences(order, corpus->train, static_cast<std::uint64_t>(steps) * batch,
                std::span(inputs).first(tokens), std::span(targets).first(tokens));
}

StepSums Trainer::State::Gradients(Pass pass, int micro_batches) {
  const std::size_t sequences = MicroBatch() * static_cast<std::size_t>(micro_batches);
  LoadBatch(sequences);
  pass.random = {config.seed, static_cast<std::uint32_t>(steps), 0};
  pass.loss_scale = loss_scale[0];
  pass.teacher = teacher.get();
  const std::size_t tokens = sequences * order.sequence;
  return engine->Gradients(pass, std::span(inputs).first(tokens), std::span(targets).first(tokens));
}

void Trainer::State::Update(double learning_rate, double norm) {
  engine->Update({.learning_rate = static_cast<float>(learning_rate),
                  .gradient_scale = ClipFactor(norm, config.optimizer.clip) / loss_scale[0],
                  .step = steps + 1});
}

void Trainer::State::Begin(const std::vector<float>& weights, const std::string& where) {
  engine->Write(NumbersBeginningWith(weights));
  start_sha256 = HashOfCheckpoint(config.start, where);
}

void Trainer::State::Plant() {
  const OutlierConfig& outliers = config.model.outliers;
  if (outliers.gain == 1.0f || outliers.step == 0 || outliers.step != steps) return;
  std::vector<float> numbers = Numbers();
  const auto part = [&](std::size_t i) {
    return std::span(numbers).subspan(i * layout.total, layout.total);
  };
  std::vector<std::span<float>> states;
  for (std::size_t i = 1; i <= StatesOfOptimizer(); ++i) states.push_back(part(i));
  PlantOutliers(config.model, part(0), states);
  engine->Write(NumbersBeginningWith(numbers));
}

void Trainer::State::EndStep(bool good) {
  if (!ScalesDynamically()) return;
  auto& [scale, since] = loss_scale;
  since += 1.0f;
  if (!good) {
    scale = std::max(1.0f, 0.5f * scale);
    since = 0.0f;
  } else if (since >= static_cast<float>(config.optimizer.loss_scaling.growth_interval)) {
    scale = std::min(kMostLossScale, 2.0f * scale);
    since = 0.0f;
  }
}

void Trainer::UseRecipeOf(std::int64_t step, std::int64_t total_steps) {
  State& s = *state_;
  const Recipe& wanted = RecipeAt(s.config.recipe, step, total_steps);
  if (s.recipe == &wanted) return;
  s.recipe = &wanted;
  s.evaluated.losses.clear();
  s.engine->UseRecipe(wanted);
}

bool Trainer::Any(bool said) { return state_->engine->Any(said); }

void Trainer::TimeSteps(bool on) { state_->times_steps = on; }
std::uint64_t Trainer::PeakMemory() const { return state_->engine->PeakMemory(); }

StepResult Trainer::Step(double learning_rate) {
  const IeeeArithmetic ieee;
  State& s = *state_;
  if (!s.times_steps) return s.Step(learning_rate);
  s.engine->BeginTiming();
  try {
    StepResult result = s.Step(learning_rate);
    result.times = s.engine->EndTiming();
    return result;
  } catch (...) {
    s.engine->EndTiming();
    throw;
  }
}

StepResult Trainer::State::Step(double learning_rate) {
  const StepSums sums = Gradients(Pass{}, config.micro_batches);
  const double scale = loss_scale[0];
  StepResult result;
  result.loss = sums.loss;
  result.grad_norm = std::sqrt(sums.gradient_squares) / scale;
  result.loss_scale = scale;
  result.teacher_kl = sums.teacher_kl;
  result.skipped = std::isfinite(result.loss) && !std::isfinite(result.grad_norm) &&
                   ScalesDynamically() && scale > 1.0;
  if (result.skipped) {
    result.grad_norm = 0.0;
  } else if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    result.non_finite = Locate();
    return result;
  } else {
    Update(learning_rate, result.grad_norm);
  }
  EndStep(!result.skipped);
  ++steps;
  Plant();
  evaluated.losses.clear();
  return result;
}

StepResult Trainer::StepOf(std::int64_t total_steps) {
  UseRecipeOf(Steps(), total_steps);
  return Step(LearningRate(Config().schedule, Steps(), total_steps));
}

NonFinite Trainer::State::Locate() {
  NonFinite found{.step = steps, .tensor = ""};
  const TensorInspector inspector = [&](const std::string& name, MatrixView<const float> x) {
    if (!found.tensor.empty()) return;
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) {
        if (!std::isfinite(x(r, c))) {
          found.tensor = name;
          return;
        }
      }
    }
  };
  std::vector<float> memory;
  const float* const parameters = engine->Read(&memory).parameters.data();
  for (const ParameterSlice& slice : layout.slices) {
    inspector(slice.name, {parameters + slice.offset, slice.rows, slice.cols});
  }
  Pass pass;
  pass.inspector = &inspector;
  if (found.tensor.empty()) Gradients(pass, config.micro_batches);
  // Every tensor is finite, so only a sum is not: that of micro-batches' gradients, or the norm's.
  if (found.tensor.empty()) found.tensor = "grad_norm";
  return found;
}

std::vector<double> Trainer::State::WindowLosses(std::span<const std::uint16_t> text,
                                                 bool high_precision) {
  const std::size_t t = order.sequence, all = text.size() - 1;
  const auto asked = static_cast<std::size_t>(config.evaluation.tokens);
  const std::size_t windows =
      std::max<std::size_t>(1, (asked > 0 ? std::min(asked, all) : all) / t);
  std::vector<double> losses(windows, 0.0);
  Pass pass;
  pass.high_precision = high_precision;
  // Process r of n computes the micro-batches r, r + n, ... One that has none computes another's,
  // too, since passes make the operands of weights that the next step may use.
  const std::size_t batches = DivideUp(windows, MicroBatch());
  const auto own = static_cast<std::size_t>(engine->Rank());
  const auto processes = static_cast<std::size_t>(engine->Size());
  for (std::size_t i = own; i < std::max(batches, own + 1); i += processes) {
    const std::size_t first = i % batches * MicroBatch();
    const std::size_t count = std::min(MicroBatch(), windows - first), rows = count * t;
    pass.tensors_before = static_cast<std::uint32_t>(i % batches) * engine->TensorsPerPass();
    pass.random = {config.seed, static_cast<std::uint32_t>(steps),
                   kEvaluationTensors + pass.tensors_before};
    for (std::size_t w = 0; w < count; ++w) {
      CopyWindow(text, (first + w) * t, std::span(inputs).subspan(w * t, t),
                 std::span(targets).subspan(w * t, t));
    }
    engine->Losses(pass, std::span(inputs).first(rows), std::span(targets).first(rows),
                   std::span(row_loss).first(rows));
    for (std::size_t w = 0; w < count && i < batches; ++w) {
      double sum = 0.0;
      for (std::size_t row = w * t; row < (w + 1) * t; ++row) sum += row_loss[row];
      losses[first + w] = sum / static_cast<double>(t);
    }
  }
  engine->Sum(losses);
  return losses;
}

bool Trainer::State::QuantizesForward() const {
  const LinearRecipe& rest = recipe->rest;
  const auto is_rest = [&](const LinearRecipe& linear) {
    return linear.bf16 == rest.bf16 && linear.fprop == rest.fprop;
  };
  return !is_rest(recipe->linear) ||
         !std::all_of(recipe->rules.begin(), recipe->rules.end(), [&](const RecipeRule& rule) {
           return is_rest(RecipeAtShare(rule.recipe, recipe->share).linear);
         });
}

const std::vector<double>& Trainer::State::EvaluatedLosses(EvaluationPrecision precision) {
  const bool high_precision = precision == EvaluationPrecision::kHigh && QuantizesForward();
  if (evaluated.losses.empty() || evaluated.high_precision != high_precision) {
    evaluated = {high_precision, WindowLosses(corpus->validation, high_precision)};
  }
  return evaluated.losses;
}

namespace {

double Mean(std::span<const double> x) {
  double sum = 0.0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

}  // namespace

Evaluation Trainer::Evaluate(EvaluationPrecision precision) {
  const IeeeArithmetic ieee;
  const std::vector<double>& losses = state_->EvaluatedLosses(precision);
  const std::size_t t = state_->order.sequence;
  const auto chunk_tokens = static_cast<std::size_t>(state_->config.evaluation.chunk_tokens);
  const std::size_t per_chunk = std::max<std::size_t>(1, chunk_tokens / t);
  Evaluation evaluation;
  evaluation.loss = Mean(losses);
  evaluation.tokens = static_cast<std::int64_t>(losses.size() * t);
  for (std::size_t first = 0; first < losses.size(); first += per_chunk) {
    const std::size_t count = std::min(per_chunk, losses.size() - first);
    evaluation.chunk_losses.push_back(Mean(std::span(losses).subspan(first, count)));
  }
  return evaluation;
}

bool IsFinite(const TextLoss& loss) {
  return std::isfinite(loss.loss) && std::isfinite(loss.loss_high.value_or(0.0));
}

std::vector<TextLoss> Trainer::EvaluateTexts() {
  const IeeeArithmetic ieee;
  State& s = *state_;
  std::vector<TextLoss> out;
  for (const ValidationPart& text : s.corpus->texts) {
    const std::vector<double> losses = s.WindowLosses(text.tokens, false);
    TextLoss& loss = out.emplace_back();
    loss.name = text.name;
    loss.loss = Mean(losses);
    loss.tokens = static_cast<std::int64_t>(losses.size() * s.order.sequence);
    if (!s.config.evaluation.high_precision) continue;
    loss.loss_high = s.QuantizesForward() ? Mean(s.WindowLosses(text.tokens, true)) : loss.loss;
  }
  return out;
}

// Runs the next step's first micro-batch, forward and backward, without an update.
std::vector<TensorStatistics> Trainer::Diagnose() {
  const IeeeArithmetic ieee;
  State& s = *state_;
  std::vector<TensorStatistics> statistics;
  const LinearObserver observer = [&](const std::string& linear, const ObservedOperand& operand) {
    statistics.push_back(MeasureOperand(linear, operand));
  };
  Pass pass;
  pass.observer = &observer;
  s.Gradients(pass, 1);
  ReturnFreedMemory();
  return statistics;
}

Observation Trainer::Observe(WeightCodes* codes) {
  const IeeeArithmetic ieee;
  State& s = *state_;
  const std::size_t t = s.order.sequence;
  const auto wanted = static_cast<std::size_t>(s.config.diagnostics.tokens);
  const std::size_t sequences = std::min(DivideUp(wanted, t), s.MicroBatch());
  s.LoadBatch(sequences);
  std::vector<float> memory;
  TrainingNumbers numbers = s.engine->Read(&memory);
  numbers.loss_scale = s.loss_scale[0];
  Observation seen = fp4lab::Observe(
      s.config, *s.recipe, numbers, s.steps, std::span(s.inputs).first(sequences * t),
      std::span(s.targets).first(sequences * t), codes, s.teacher.get());
  ReturnFreedMemory();
  return seen;
}

// The members that a state must share with the configuration that loads it.
Json Trainer::State::Identity() const {
  Json identity = {
      {"model", ToJson(config.model)},
      {"optimizer", ToJson(config.optimizer)},
      {"recipe", ToJson(config.recipe)},
      {"seed", config.seed},
      {"batch", config.batch},
      {"micro_batches", config.micro_batches},
      {"corpus", {{"train_sha256", corpus->train_sha256}, {"tokens", corpus->train.size()}}}};
  if (!start_sha256.empty()) identity["start"] = start_sha256;
  if (!teacher_identity.is_null()) identity["teacher"] = teacher_identity;
  if (config.data.order_seed) identity["order_seed"] = *config.data.order_seed;
  return identity;
}

void Trainer::State::ReadNumbers(const FloatSink& take) const {
  std::vector<float> memory;
  const TrainingNumbers numbers = engine->Read(&memory);
  take(numbers.parameters);
  const std::vector<float> histories(numbers.amax_histories.begin(), numbers.amax_histories.end());
  engine->ReadStates(take);
  take(histories);
  take(LossScaleNumbers());
}

std::vector<float> Trainer::State::Numbers() const {
  std::vector<float> numbers;
  numbers.reserve(NumbersOfStep());
  ReadNumbers([&](std::span<const float> piece) {
    numbers.insert(numbers.end(), piece.begin(), piece.end());
  });
  return numbers;
}

void Trainer::State::Return(std::int64_t done, const FloatSource& numbers) {
  engine->Write(numbers);
  const std::size_t count = LossScaleNumbers().size();
  numbers(NumbersOfStep() - count, std::span(loss_scale).first(count));
  steps = done;
  evaluated.losses.clear();
}

void Trainer::SaveState(const ByteSink& sink, const Json& run, std::span<const float> trunk) const {
  const IeeeArithmetic ieee;
  const State& s = *state_;
  CheckpointWriter writer({s.Identity(), s.steps, run}, s.NumbersOfStep() + trunk.size(), sink);
  s.ReadNumbers([&](std::span<const float> piece) { writer.Add(piece); });
  writer.Add(trunk);
  writer.Finish();
}

bool Trainer::ShardsStates() const { return state_->engine->ShardsStates(); }

void Trainer::SendStates() const {
  const IeeeArithmetic ieee;
  state_->engine->ReadStates([](std::span<const float>) {});
}

std::vector<std::byte> Trainer::SaveState() const {
  const IeeeArithmetic ieee;
  std::vector<std::byte> state;
  state.reserve(state_->NumbersOfStep() * sizeof(float) + (std::size_t{1} << 14));
  SaveState([&](std::span<const std::byte> bytes) {
    state.insert(state.end(), bytes.begin(), bytes.end());
  });
  return state;
}

LoadedState Trainer::LoadState(std::span<const std::byte> bytes, const std::string& where) {
  const IeeeArithmetic ieee;
  State& s = *state_;
  const CheckpointView checkpoint = ViewCheckpoint(bytes, where);
  const std::string difference = FirstDifference(s.Identity(), checkpoint.header.configuration);
  if (!difference.empty()) {
    throw Error(where, "checkpoint of another configuration: " + difference);
  }
  const std::size_t numbers = s.NumbersOfStep(), floats = checkpoint.Floats();
  if ((floats != numbers && floats != 2 * numbers) || checkpoint.header.step < 0) {
    throw Error(where, "checkpoint does not hold this model's numbers");
  }
  s.Return(checkpoint.header.step,
           [&](std::size_t first, std::span<float> to) { checkpoint.CopyTo(first, to); });
  LoadedState loaded{checkpoint.header.run, std::vector<float>(floats - numbers)};
  checkpoint.CopyTo(numbers, loaded.trunk);
  return loaded;
}

std::vector<float> Trainer::Numbers() const {
  const IeeeArithmetic ieee;
  return state_->Numbers();
}

void Trainer::Return(std::int64_t steps, std::span<const float> numbers) {
  const IeeeArithmetic ieee;
  State& s = *state_;
  Expects(numbers.size() == s.NumbersOfStep(), "Trainer::Return: numbers of this model");
  s.Return(steps, NumbersBeginningWith(numbers));
}

Trainer::Trainer(const TrainConfig& config, const Corpus& corpus, const std::string& where)
    : Trainer(config, corpus, where, World{}) {}

Trainer::Trainer(const TrainConfig& config, const Corpus& corpus, const std::string& where,
                 const World& world)
    : Trainer(config, corpus, where, [&] {
        const Json empty = Json::object();
        return MakeEngine(config, JsonObject(empty, where).Where("device"), world);
      }) {}

Trainer::Trainer(const TrainConfig& config, const Corpus& corpus, const std::string& where,
                 const EngineMaker& make) {
  const IeeeArithmetic ieee;
  CheckShapes(config, where);
  CheckDevice(config, where, where);
  CheckCorpus(config, corpus, where);
  CheckTeacher(config, where);
  CheckMemory(config, where);
  // Checkpoints are read before the engine takes its memory.
  std::vector<float> start;
  if (!config.start.empty()) start = ReadStart(config, where);
  std::unique_ptr<Teacher> teacher;
  if (config.teacher.Asked()) teacher = std::make_unique<Teacher>(config, where);
  state_ = std::make_unique<State>(config, corpus, make());
  state_->engine->Initialize();
  if (!config.start.empty()) state_->Begin(start, where);
  if (config.teacher.Asked()) {
    state_->teacher = std::move(teacher);
    state_->teacher_identity = TeacherIdentity(config, where);
  }
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const TrainConfig& Trainer::Config() const { return state_->config; }
std::int64_t Trainer::Steps() const { return state_->steps; }
std::string Trainer::Processor() const { return state_->engine->Processor(); }

}  // namespace fp4lab
