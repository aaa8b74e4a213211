#include "fp4lab/study/several/league.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/study/several/effects.h"
#include "fp4lab/study/several/recipe_class.h"
#include "fp4lab/study/several/seed_noise.h"
#include "fp4lab/train/model/product_widths.h"

namespace fp4lab::study {
namespace {

constexpr double kLevel = 0.05;  // of the tests of "pairs", and of "simultaneous"
// Losses of one computation that two studies print differ by the rounding of a mean at most.
constexpr double kSameLoss = 1e-12;

// By the forward pass: the fewer bits it has, the noisier are the losses, and seeds act on each
// class otherwise.
constexpr std::string_view kPools[] = {"NVFP4 and others of 4 bits", "NVFP4 and others of 4 bits",
                                       "MXFP4", "8 bits or BF16", "8 bits or BF16"};

// A reference over budgets.
struct Curve {
  std::map<std::int64_t, std::map<std::uint64_t, double>> losses;  // [tokens][seed]
  std::map<std::int64_t, bool> apart;
};

struct Difference {
  std::size_t seeds = 0;
  double mean = 0, p = 1;
  std::optional<Interval> interval;
};

class League {
 public:
  explicit League(const LeagueFile& file) : file_(file) {
    for (const StudyFiles& files : file.studies) AddRecipes(files);
    for (const StudyFiles& files : file.curves) AddCurves(files);
    for (const std::string& name : References()) CheckCurve(name);
    std::vector<std::string> pools;
    for (const auto& [name, losses] : losses_) pools.push_back(PoolOf(name));
    for (std::size_t i = 0; i < pools.size(); ++i) pools_[losses_[i].first] = pools[i];
    noise_.emplace(losses_, pools);
  }

  Json Document() {
    Json rows = Rows();
    Json document = {{"budget", file_.budget},
                     {"block_parameters", parameters_},
                     {"sources", sources_},
                     {"plans", kPlanClasses},
                     {"forwards", kForwardClasses},
                     {"reference", file_.reference},
                     {"base", file_.base},
                     {"noise", NoiseFacts()},
                     {"first", First(rows)},
                     {"order", Order(rows)},
                     {"pairs", Pairs()},
                     {"comparisons", Json::object()}};
    for (const auto& [name, pair] : file_.comparisons) {
      document["comparisons"][name] = ToJson(pair);
    }
    document["rows"] = std::move(rows);
    return document;
  }

 private:
  std::vector<std::string> References() const { return {file_.reference, file_.base}; }

  // The name in the studies of recipes of an arm of the studies of curves.
  std::string OwnName(const std::string& theirs, bool is_curve) const {
    for (const auto& [ours, other] : file_.names) {
      if (is_curve && other == theirs) return ours;
    }
    return theirs;
  }

  void CheckSource(const JoinedStudy& study, bool is_curve) {
    const Results& results = study.results;
    const std::string text = results.train_sha256 + results.validation_sha256;
    if (!text_.empty() && (text != text_ || results.block_parameters != parameters_)) {
      throw Error(study.Name(),
                  "has another text or model than the studies before it; a league is "
                  "of one");
    }
    text_ = text;
    parameters_ = results.block_parameters;
    for (const std::string& arm : results.arms) {
      const Json fingerprint = results.numerics.value(arm, Json());
      const auto [known, is_new] = numerics_.emplace(OwnName(arm, is_curve), fingerprint);
      if (!is_new && known->second != fingerprint) {
        throw Error(study.Name(), "its arm \"" + arm +
                                      "\" has another fingerprint than in the studies before it");
      }
    }
    sources_.push_back(SourceOf(study.files[0]));
    for (const Json& joined : JoinedSources(study)) sources_.push_back(joined);
  }

  SeedLosses* LossesOf(const std::string& recipe) {
    for (auto& [name, losses] : losses_) {
      if (name == recipe) return &losses;
    }
    return nullptr;
  }
  const SeedLosses& At(const std::string& recipe) const {
    std::vector<std::string> names;
    for (const auto& [name, losses] : losses_) {
      if (name == recipe) return losses;
      names.push_back(name);
    }
    throw Error(file_.studies[0].results.string(),
                "neither it nor another study of the league has "
                "the recipe \"" +
                    recipe + "\"; " + DidYouMean(recipe, names));
  }

  // All runs that ended, of arms that miss seeds, too.
  void AddRecipes(const StudyFiles& files) {
    const JoinedStudy study = ReadStudy(files);
    CheckSource(study, false);
    const Results results = LoadResults(files.results);
    for (const std::string& arm : results.arms) {
      for (const RunResult& run : results.runs) {
        if (run.arm != arm || run.diverged) continue;
        for (const AnnealedPoint& point : run.points) {
          if (point.tokens != file_.budget || !std::isfinite(point.loss)) continue;
          if (LossesOf(arm) == nullptr) losses_.emplace_back(arm, SeedLosses());
          (*LossesOf(arm))[run.seed] = point.loss;
        }
      }
      recipes_.insert_or_assign(arm, ReadRecipe(results.study.at("arms").at(arm).at("recipe"),
                                                results.name + "#/study/arms/" + arm + "/recipe"));
      models_.insert_or_assign(arm, ReadModelConfig(results.ModelOf(arm), results.name));
    }
    if (std::count(results.budgets.begin(), results.budgets.end(), file_.budget) == 0) {
      throw Error(results.name,
                  "has no budget of " + std::to_string(file_.budget) + " tokens, the league's");
    }
  }

  // A study of recipes, of which any arm is complete enough to check the rest by.
  JoinedStudy ReadStudy(const StudyFiles& files) const {
    const Results results = LoadResults(files.results);
    const std::string& any = results.question.reference;
    return ReadJoinedStudy(files, any, "");
  }

  void AddCurves(const StudyFiles& files) {
    const JoinedStudy study = ReadStudy(files);
    CheckSource(study, true);
    for (const std::string& name : References()) {
      const auto renamed = file_.names.find(name);
      const std::size_t arm =
          study.Arm(study.Has(name) || renamed == file_.names.end() ? name : renamed->second);
      Curve& curve = curves_[name];
      for (std::size_t k = 0; k < study.cube.Budgets(); ++k) {
        const std::int64_t tokens = study.results.budgets[k];
        if (curve.losses.count(tokens) > 0) {
          throw Error(study.Name(), name + " has been read at " + std::to_string(tokens) +
                                        " tokens; give each budget in one study");
        }
        for (std::size_t s = 0; s < study.cube.seeds; ++s) {
          curve.losses[tokens][study.results.seeds[s]] = study.cube.At(s, arm, k);
        }
        curve.apart[tokens] = study.Apart(arm, k);
      }
    }
  }

  void CheckCurve(const std::string& name) const {
    const auto at = curves_.at(name).losses.find(file_.budget);
    if (at == curves_.at(name).losses.end()) {
      throw Error("curves", "no study has " + name + " at the league's budget of " +
                                std::to_string(file_.budget) + " tokens");
    }
    for (const auto& [seed, loss] : At(name)) {
      const auto other = at->second.find(seed);
      if (other == at->second.end() || !(std::abs(other->second - loss) <= kSameLoss)) {
        throw Error(name, "seed " + std::to_string(seed) +
                              ": the league's loss is not the curves'; their programs differ");
      }
    }
  }

  std::vector<std::uint64_t> Common(const std::vector<std::string>& recipes) const {
    std::vector<std::uint64_t> seeds;
    for (const auto& [seed, loss] : At(recipes[0])) {
      if (std::all_of(recipes.begin(), recipes.end(),
                      [&, s = seed](const std::string& r) { return At(r).count(s) > 0; })) {
        seeds.push_back(seed);
      }
    }
    return seeds;
  }

  std::vector<double> Gaps(const std::string& a, const std::string& b,
                           const std::vector<std::uint64_t>& seeds) const {
    std::vector<double> gaps;
    for (const std::uint64_t seed : seeds) gaps.push_back(At(a).at(seed) - At(b).at(seed));
    return gaps;
  }

  // Empty for a recipe that hardly learns, and where no seed says so.
  std::string PoolOf(const std::string& recipe) const {
    const std::vector<double> gaps =
        Gaps(recipe, file_.reference, Common({recipe, file_.reference}));
    if (gaps.empty() || *std::max_element(gaps.begin(), gaps.end()) > kFailed) return "";
    return std::string(kPools[static_cast<std::size_t>(ForwardClassOf(recipes_.at(recipe)))]);
  }

  // ln of the token ratio of a mean difference and the ends of its interval; null where one of
  // them does not stand.
  Json LogRatio(const std::string& reference, double mean,
                const std::optional<Interval>& interval) const {
    const Curve& curve = curves_.at(reference);
    LossCurve means;
    std::vector<bool> apart;
    std::size_t own = 0;
    for (const auto& [tokens, losses] : curve.losses) {
      if (tokens == file_.budget) own = means.losses.size();
      double sum = 0;
      for (const auto& [seed, loss] : losses) sum += loss;
      means.log_tokens.push_back(std::log(static_cast<double>(tokens)));
      means.losses.push_back(sum / static_cast<double>(losses.size()));
      apart.push_back(curve.apart.at(tokens));
    }
    if (!means.Usable()) return nullptr;
    const double level = SmoothCurve(means).LossAt(own);
    std::vector<double> rises = {mean};
    if (interval) rises.insert(rises.end(), {interval->low, interval->high});
    std::vector<double> ratios;
    for (const double rise : rises) {
      const std::optional<double> x = StandingCrossing(means, apart, level + rise);
      if (!x) return nullptr;
      ratios.push_back(means.log_tokens[own] - *x);
    }
    return {{"mean", ratios[0]}, {"interval", interval ? Json{ratios[1], ratios[2]} : Json()}};
  }

  // By loss; "seeds" are those that the recipe and both references have.
  Json Rows() const {
    std::vector<Json> rows;
    for (const auto& [name, losses] : losses_) {
      const std::vector<std::uint64_t> seeds = Common({name, file_.reference, file_.base});
      if (seeds.empty()) continue;
      const Recipe& recipe = recipes_.at(name);
      const ModelConfig& model = models_.at(name);
      const ProductWidths widths = ProductWidthsOf(recipe, model);
      const RecipeExtras extras = ExtrasOf(recipe);
      const std::optional<double> time = ProductTime(widths);
      Json shares = {{"4", 0.0}, {"8", 0.0}, {"16", 0.0}};
      for (const auto& [bits, share] : widths) shares[std::to_string(bits)] = share;
      double sum = 0;
      for (const std::uint64_t seed : seeds) sum += losses.at(seed);
      const std::string& pool = pools_.at(name);
      Json row = {{"recipe", name},
                  {"seeds", seeds},
                  {"loss", sum / static_cast<double>(seeds.size())},
                  {"four_bits", shares["4"].get<double>() > 1 - 1e-9},
                  {"forward", static_cast<int>(ForwardClassOf(recipe))},
                  {"plan", PlanClassOf(recipe, model)},
                  {"partly", IsPartial(recipe, model)},
                  {"shares", shares},
                  {"product_time", time ? Json(*time) : Json()},
                  {"extras",
                   {{"hadamard", extras.hadamard},
                    {"stochastic", extras.stochastic},
                    {"two_scales", extras.two_scales},
                    {"ms_eden", extras.ms_eden}}},
                  {"pool", pool.empty() ? Json() : Json(pool)}};
      for (const std::string& reference : References()) {
        const std::vector<double> gaps = Gaps(name, reference, seeds);
        const double mean = Summarize(gaps).mean;
        std::optional<Interval> interval;
        if (const auto half =
                noise_->HalfWidth(pool, pools_.at(reference), seeds.size(), kConfidence);
            half && name != reference) {
          interval = Interval{mean - *half, mean + *half};
        }
        row["gap"][reference] = {
            {"mean", mean},
            {"interval", interval ? Json{interval->low, interval->high} : Json()},
            {"seeds", gaps}};
        row["log_ratio"][reference] =
            name == reference ? Json() : LogRatio(reference, mean, interval);
      }
      rows.push_back(std::move(row));
    }
    std::stable_sort(rows.begin(), rows.end(), [&](const Json& a, const Json& b) {
      return a["gap"][file_.reference]["mean"] < b["gap"][file_.reference]["mean"];
    });
    return rows;
  }

  // Mean of a - b over common seeds; no interval where the noise of a pool is not known.
  Difference Between(const std::string& a, const std::string& b, double confidence) const {
    const std::vector<std::uint64_t> seeds = Common({a, b});
    if (seeds.empty()) throw Error(a, "has no seed in common with " + b);
    Difference difference{seeds.size(), Summarize(Gaps(a, b, seeds)).mean, 1, {}};
    const std::string &x = pools_.at(a), &y = pools_.at(b);
    const auto half = noise_->HalfWidth(x, y, seeds.size(), confidence);
    if (!half) return difference;
    difference.interval = Interval{difference.mean - *half, difference.mean + *half};
    const Variance one = noise_->OfOneSeed(x, y);
    const double deviation = std::sqrt(one.value / static_cast<double>(seeds.size()));
    difference.p = StudentTwoSided(difference.mean / deviation, one.freedom);
    return difference;
  }

  Json ToJson(const LeaguePair& pair, double confidence = kConfidence) const {
    const Difference d = Between(pair.recipe, pair.against, confidence);
    Json json = {{"recipe", pair.recipe},
                 {"against", pair.against},
                 {"seeds", d.seeds},
                 {"mean", d.mean},
                 {"interval", d.interval ? Json{d.interval->low, d.interval->high} : Json()},
                 {"p", d.interval ? Json(d.p) : Json()}};
    if (!pair.what.empty()) json["what"] = pair.what;
    if (pair.against == file_.base) {
      Json ratio = LogRatio(file_.base, d.mean, d.interval);
      if (!ratio.is_null() && d.interval) {
        json["token_ratio"] = {std::exp(ratio["mean"].get<double>()),
                               std::exp(ratio["interval"][0].get<double>()),
                               std::exp(ratio["interval"][1].get<double>())};
      }
    }
    return json;
  }

  // Recipes with 4-bit products only, by loss.
  static std::vector<std::string> Best(const Json& rows) {
    std::vector<std::string> best;
    for (const Json& row : rows) {
      if (row["four_bits"] == true && !row["pool"].is_null()) best.push_back(row["recipe"]);
    }
    return best;
  }

  // The leader against the base and against the recipe next to it; where this league chose it, with
  // the interval for the best of all such recipes (Bonferroni: all differences together).
  Json First(const Json& rows) const {
    const std::vector<std::string> best = Best(rows);
    if (best.empty()) return nullptr;
    const std::string leader = file_.leader.empty() ? best[0] : file_.leader;
    At(leader);  // throws
    Json first = {{"block_parameters", parameters_}};
    if (leader == file_.base) return nullptr;
    first["against_base"] = ToJson({leader, file_.base, ""});
    for (const std::string& second : best) {
      if (second == leader || second == file_.base) continue;
      first["against_second"] = ToJson({leader, second, ""});
      break;
    }
    if (!file_.leader.empty()) return first;
    std::size_t family = 0;
    for (const auto& [name, losses] : DistinctLosses(losses_)) {
      family += std::count(best.begin(), best.end(), name) > 0 ? 1 : 0;
    }
    if (family < 2) return first;
    first["family"] = --family;
    first["simultaneous"] =
        ToJson({leader, file_.base, ""}, 1 - kLevel / static_cast<double>(family));
    return first;
  }

  // Of the distinct recipes of plan NVFP4 behind the first: how far apart their means are, beside
  // what seeds alone leave.
  Json Order(const Json& rows) const {
    std::set<std::string> own;
    for (const auto& [name, losses] : DistinctLosses(losses_)) own.insert(name);
    std::vector<double> losses;
    const Json* any = nullptr;
    bool first = true;
    for (const Json& row : rows) {
      if (row["plan"] != kNvfp4Plan || row["pool"].is_null() ||
          own.count(row["recipe"].get<std::string>()) == 0) {
        continue;
      }
      if (first) {
        first = false;
        continue;
      }
      if (any == nullptr) any = &row;
      losses.push_back(row["loss"]);
    }
    if (losses.size() < 2) return nullptr;
    const auto pool = noise_->Pools().find((*any)["pool"].get<std::string>());
    if (pool == noise_->Pools().end()) return nullptr;
    const double seeds = static_cast<double>((*any)["seeds"].size());
    const double deviation = Summarize(losses).deviation;
    const double alone = pool->second.deviation / std::sqrt(seeds);
    const double f = deviation * deviation / (alone * alone);
    return {{"recipes", losses.size()},
            {"deviation_of_means", deviation},
            {"of_seeds_alone", alone},
            {"f", f},
            {"p", FisherAbove(f, static_cast<double>(losses.size() - 1), pool->second.freedom)}};
  }

  Json Pairs() const {
    Json pairs = Json::array();
    std::vector<double> p;
    for (const LeaguePair& pair : file_.pairs) {
      pairs.push_back(ToJson(pair));
      p.push_back(pairs.back()["p"].is_null() ? 1.0 : pairs.back()["p"].get<double>());
    }
    const std::vector<bool> kept = HolmKept(p, kLevel);
    for (std::size_t i = 0; i < kept.size(); ++i) pairs[i]["kept"] = bool{kept[i]};
    return pairs;
  }

  Json NoiseFacts() const {
    Json facts = {{"pools", Json::object()}, {"half_width_of_one_seed", Json::object()}};
    for (auto a = noise_->Pools().begin(); a != noise_->Pools().end(); ++a) {
      facts["pools"][a->first] = {
          {"recipes", a->second.recipes},
          {"deviation", a->second.deviation},
          {"degrees_of_freedom", static_cast<std::int64_t>(a->second.freedom)}};
      for (auto b = a; b != noise_->Pools().end(); ++b) {
        facts["half_width_of_one_seed"][a->first + ", " + b->first] =
            *noise_->HalfWidth(a->first, b->first, 1, kConfidence);
      }
    }
    return facts;
  }

  const LeagueFile& file_;
  Json sources_ = Json::array();
  std::string text_;
  std::int64_t parameters_ = 0;
  std::map<std::string, Json> numerics_;
  RecipeLosses losses_;
  std::map<std::string, Recipe> recipes_;
  std::map<std::string, ModelConfig> models_;
  std::map<std::string, Curve> curves_;
  std::map<std::string, std::string> pools_;
  std::optional<SeedNoise> noise_;
};

LeaguePair ReadPair(const Json& json, const std::string& where, bool with_what) {
  const std::size_t count = with_what ? 3 : 2;
  if (!json.is_array() || json.size() != count ||
      !std::all_of(json.begin(), json.end(), [](const Json& x) { return x.is_string(); })) {
    throw Error(
        where, with_what ? "must be [recipe, against, what differs]" : "must be [recipe, against]");
  }
  return {json[0], json[1], with_what ? json[2].get<std::string>() : ""};
}

}  // namespace

LeagueFile ReadLeagueFile(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  const Json json = ReadJsonFile(path);
  JsonObject o(json, path.string());
  LeagueFile file;
  o.Require("budget", &file.budget);
  file.studies = ReadStudyList(o, "studies", path.parent_path());
  file.curves = ReadStudyList(o, "curves", path.parent_path());
  o.Require("reference", &file.reference);
  o.Require("base", &file.base);
  o.Read("leader", &file.leader);
  if (const Json* names = o.Member("names")) {
    JsonObject of(*names, o.Where("names"));
    for (const auto& [ours, theirs] : names->items()) of.Read(ours, &file.names[ours]);
  }
  if (const Json* pairs = o.Member("pairs")) {
    if (!pairs->is_array()) throw Error(o.Where("pairs"), "must be an array");
    for (std::size_t i = 0; i < pairs->size(); ++i) {
      file.pairs.push_back(ReadPair((*pairs)[i], o.Where("pairs") + "/" + std::to_string(i), true));
    }
  }
  if (const Json* comparisons = o.Member("comparisons")) {
    const JsonObject of(*comparisons, o.Where("comparisons"));
    for (const auto& [name, pair] : comparisons->items()) {
      file.comparisons[name] = ReadPair(pair, of.Where(name), false);
    }
  }
  o.Finish();
  if (file.reference == file.base) {
    throw Error(o.Where("base"), "must be another recipe than the reference");
  }
  return file;
}

Json LeagueDocument(const LeagueFile& file) {
  const IeeeArithmetic ieee;
  return League(file).Document();
}

}  // namespace fp4lab::study
