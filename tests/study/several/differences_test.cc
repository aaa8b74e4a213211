// Differences of arms, on studies whose differences are known.
#include "fp4lab/study/several/differences.h"

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "tests/study/several/made_studies.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

TEST_CASE("Differences are paired over seeds, and a share of a whole is Fieller's", "[several]") {
  Folder folder;
  // The last budget alone counts. Seeds move all arms alike: differences have no scatter of theirs.
  const LossOf loss = [](const std::string& arm, double, double tokens, int seed) {
    const double own = arm == "mxfp4" ? 0.4 + 0.01 * (seed % 2) : arm == "nvfp4" ? 0.1 : 0;
    return 1 + 0.2 * seed + own * (tokens > 1e8 ? 1 : 5);
  };
  folder.Add({.name = "made"}, loss);
  const Json right = {
      {"studies", {"../made"}},
      {"differences",
       {{{"study", "made"}, {"arm", "mxfp4"}, {"base", "nvfp4"}, {"of", {"mxfp4", "bf16"}}},
        {{"study", "made"}, {"arm", "nvfp4"}, {"base", "bf16"}}}}};
  const auto document = [&](const Json& ask) {
    return DifferencesDocument(ReadDifferencesFile(folder.Ask(ask)));
  };
  const Json made = document(right);
  const Json &share = made["differences"][0], &plain = made["differences"][1];
  CHECK(share["mean"].get<double>() == Approx(0.305));               // 0.31, 0.30, 0.31, 0.30
  const double half = 3.182446305 * std::sqrt(0.01 * 0.01 / 3) / 2;  // t of 3 degrees of freedom
  CHECK(share["interval_t"][1].get<double>() == Approx(0.305 + half));
  CHECK(share["share"]["ratio"].get<double>() == Approx(0.305 / 0.405));
  CHECK(share["share"]["interval"][0].get<double>() < 0.305 / 0.405);
  CHECK(share["share"]["interval"][1].get<double>() > 0.305 / 0.405);
  CHECK(plain["mean"].get<double>() == Approx(0.1));
  CHECK_FALSE(plain.contains("share"));
  // At another budget: nvfp4 is 0.5 above there.
  Json smaller = right;
  smaller["differences"][1]["tokens"] = 8000000;
  CHECK(document(smaller)["differences"][1]["mean"].get<double>() == Approx(0.5));
  // A difference of differences, and what a margin makes of its interval, 0.205 +- 0.009.
  for (const auto& [margin, verdict] :
       {std::pair{0.3, "within the margin"}, {0.1, "beyond the margin"}, {0.205, "not decided"}}) {
    Json ask = right;
    ask["differences"] = {{{"study", "made"},
                           {"arm", "mxfp4"},
                           {"base", "nvfp4"},
                           {"against", {"nvfp4", "bf16"}},
                           {"margin", margin}}};
    const Json less = document(ask)["differences"][0];
    CHECK(less["mean"].get<double>() == Approx(0.205));
    CHECK(less["interval_t"][1].get<double>() == Approx(0.205 + half));
    CHECK(less["verdict"] == verdict);
    // With t of 0.9 and of 0.975 for 3 degrees of freedom.
    CHECK(less["shown_margin"].get<double>() == Approx(half * (1 + 1.637744354 / 3.182446305)));
  }
  // All chunks differ alike, so the text adds nothing; where one arm is worse on half of the text,
  // it does.
  CHECK(share["interval_with_text"][1].get<double>() == Approx(0.305 + half).margin(1e-9));
  Json uneven = ResultsOf({.name = "made"}, loss);
  for (Json& run : uneven["runs"]) {
    Json& chunks = run["points"].back()["chunk_losses"];
    for (std::size_t c = 0; c < chunks.size() && run["arm"] == "nvfp4"; ++c) {
      chunks[c] = chunks[c].get<double>() + (2 * c < chunks.size() ? 0.1 : -0.1);
    }
  }
  folder.Add("made", uneven);
  const Json with_text = document(right)["differences"][0];
  CHECK(with_text["interval_t"] == share["interval_t"]);
  // Four blocks, each of +0.1 or -0.1: a deviation of about 0.05.
  const double more = with_text["interval_with_text"][1];
  CHECK(more > 0.305 + 1.96 * 0.03);
  CHECK(more < 0.305 + 1.96 * 0.08);
  const auto refused = [&](const std::function<void(Json*)>& change, const std::string& words) {
    Json ask = right;
    change(&ask);
    const std::string error = ErrorOf([&] { document(ask); });
    CAPTURE(error);
    CHECK(error.find(words) != std::string::npos);
  };
  refused([](Json* a) { (*a)["differences"][0]["study"] = "mad"; }, "there is no study \"mad\"");
  refused([](Json* a) { (*a)["differences"][0]["arm"] = "fp9"; }, "no arm \"fp9\"");
  refused([](Json* a) { (*a)["differences"][0]["of"] = {"mxfp4"}; },
          "#/differences/0/of: must be two arms");
  refused([](Json* a) { (*a)["differences"] = Json::array(); }, "#/differences: must be an array");
  refused([](Json* a) { (*a)["differences"][0]["margin"] = 0; },
          "#/differences/0/margin: must be a positive number");
  refused([](Json* a) { (*a)["differences"][0]["tokens"] = 0; },
          "#/differences/0/tokens: must be a budget");
  refused([](Json* a) { (*a)["differences"][0]["tokens"] = 7; },
          "has no budget of 7 tokens, but 8000000 16000000");
  refused([](Json* a) { (*a)["differences"][1]["against"] = {"bf16"}; },
          "#/differences/1/against: must be two arms");
  refused(
      [](Json* a) {
        (*a)["differences"][0]["against"] = {"nvfp4", "bf16"};
      },
      "#/differences/0/against: is for a difference that is no share");
}

}  // namespace
}  // namespace fp4lab::study
