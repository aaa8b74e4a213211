// What an Identification says, for people and for machines.
#include <string>

#include "fp4lab/judge/identify.h"

namespace fp4lab {
namespace {

std::string Names(const std::vector<Candidate>& candidates) {
  std::string text;
  for (const Candidate& c : candidates) text += "  " + Name(c) + "\n";
  return text;
}

std::string NearText(const Identification& r) {
  std::string text = "No dialect and layout of " + std::to_string(r.tried) +
                     " that fit the sizes gives these bytes.\n";
  if (r.near.empty()) return text + "Do: check the shape of the input and which bytes are what.\n";
  text += "Nearest:\n";
  for (const Identification::Near& n : r.near) {
    text += "  " + Name(n.candidate) + ": " + std::to_string(n.counts.codes_differ) + " of " +
            std::to_string(n.counts.codes) + " codes and " +
            std::to_string(n.counts.scales_differ) + " of " + std::to_string(n.counts.scales) +
            " scales differ\n";
  }
  return text + "Do: fp4lab explain --dialect " +
         std::string(r.near.front().candidate.kernel.dialect.name) +
         " looks for what the kernel does differently.\n";
}

std::string DecidingText(const Identification& r) {
  std::string text;
  for (std::size_t k = 0; k < r.deciding.size(); ++k) {
    const DecidingInput& input = r.deciding[k];
    text += "Deciding input " + std::to_string(k) + " (" + std::to_string(input.x.rows) + "x" +
            std::to_string(input.x.cols) + ") parts them into " +
            std::to_string(input.groups.size()) + " groups:\n";
    for (std::size_t g = 0; g < input.groups.size(); ++g) {
      for (std::size_t m = 0; m < input.groups[g].members.size(); ++m) {
        text += (m == 0 ? "  " + std::to_string(g) + "  " : "     ") +
                Name(r.exact[input.groups[g].members[m]]) + "\n";
      }
    }
  }
  if (!r.inseparable.empty()) text += "No input that was tried parts:\n";
  for (const std::vector<std::size_t>& part : r.inseparable) {
    for (std::size_t m = 0; m < part.size(); ++m) {
      text += (m == 0 ? "  -  " : "     ") + Name(r.exact[part[m]]) + "\n";
    }
  }
  return text;
}

Json CandidateJson(const Candidate& c) {
  const StorageLayout& l = c.kernel.layout;
  return {{"name", Name(c)},
          {"dialect", c.kernel.dialect.name},
          {"codes_order", Name(l.codes)},
          {"scales_order", Named(l.scales).name},
          {"transposed", l.transposed},
          {"expanded_scales", l.expanded_scales},
          {"level_two_is", kLevelTwoConventions[static_cast<std::size_t>(l.level_two)].name},
          {"transpose_input", c.columnwise},
          {"hadamard", c.kernel.hadamard},
          {"sign_mask", c.kernel.sign_mask}};
}

}  // namespace

std::string Text(const Identification& r) {
  std::string text;
  if (r.exact.size() == 1) {
    text = "These bytes are exactly those of\n" + Names(r.exact);
  } else if (!r.exact.empty()) {
    text = "These bytes are exactly those of each of\n" + Names(r.exact) +
           "This input cannot tell them apart.\n" + DecidingText(r);
  } else if (r.allowed.empty()) {
    text = NearText(r);
  }
  if (!r.allowed.empty()) {
    text += "They lie inside the allowed answers of\n" + Names(r.allowed);
  }
  return text;
}

Json ToJson(const Identification& r) {
  Json json = {{"tried", r.tried},          {"exact", Json::array()},
               {"allowed", Json::array()},  {"near", Json::array()},
               {"deciding", Json::array()}, {"inseparable", r.inseparable}};
  for (const Candidate& c : r.exact) json["exact"].push_back(CandidateJson(c));
  for (const Candidate& c : r.allowed) json["allowed"].push_back(CandidateJson(c));
  for (const Identification::Near& n : r.near) {
    Json near = CandidateJson(n.candidate);
    near["codes_different"] = n.counts.codes_differ;
    near["scales_different"] = n.counts.scales_differ;
    json["near"].push_back(std::move(near));
  }
  for (const DecidingInput& input : r.deciding) {
    Json groups = Json::array();
    for (const DecidingInput::Group& g : input.groups) groups.push_back(g.members);
    json["deciding"].push_back(
        {{"rows", input.x.rows}, {"cols", input.x.cols}, {"groups", groups}});
  }
  return json;
}

}  // namespace fp4lab
