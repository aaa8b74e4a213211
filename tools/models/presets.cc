// fp4lab presets: published shapes of models that a configuration may name.
#include "fp4lab/train/start/presets.h"

#include <memory>
#include <string>

#include "fp4lab/base/text/text.h"
#include "fp4lab/train/config.h"
#include "tools/help/fitted.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct PresetsOptions {
  std::string name;
  std::int64_t d_model = 0, sequence = 0;
  bool json = false;
};

void PrintPresets() {
  TableRows lines;
  for (const Preset& preset : Presets()) {
    lines.push_back({preset.name, preset.title + (preset.not_modelled.empty() ? "" : " *")});
  }
  PrintFitted(AlignedText(lines), lines, false, "");
  PrintText("\n* in part: `fp4lab presets NAME` lists what is not modelled\n" +
            std::string(kPresetRule) + "\n");
}

std::string Names(const Json& list) { return Joined(list.get<std::vector<std::string>>(), ", "); }

Json Evidence(const Preset& preset) {
  Json rows = Json::array();
  for (const PresetEvidence& e : preset.evidence) {
    rows.push_back(
        {{"repository", e.repository}, {"file", e.file}, {"commit", e.commit}, {"shows", e.shows}});
  }
  return rows;
}

Json Described(const Preset& preset, const PresetsOptions& o) {
  const Json members =
      ModelOfPreset(preset, static_cast<int>(o.d_model), static_cast<int>(o.sequence));
  const ModelConfig model = ReadModelConfig(members, "presets");
  return {{"name", preset.name},
          {"title", preset.title},
          {"source", preset.source},
          {"evidence", Evidence(preset)},
          {"unproved", preset.unproved},
          {"not_modelled", preset.not_modelled},
          {"published", preset.published},
          {"model", ToJson(model)},
          {"parameters", ParameterCount(model)}};
}

void Run(const PresetsOptions& o) {
  if (o.name.empty() && !o.json) return PrintPresets();
  if (o.name.empty()) {
    Json rows = Json::array();
    for (const Preset& preset : Presets()) rows.push_back(Described(preset, o));
    return PrintJson(Json{{"presets", std::move(rows)}, {"rule", kPresetRule}}, 2);
  }
  const Json row = Described(PresetNamed(o.name, "presets"), o);
  if (o.json) return PrintJson(row, 2);
  const auto print = [](const char* key, const std::string& text) {
    if (!text.empty()) PrintLabelled(key, 14, text);
  };
  for (const char* key : {"name", "title", "source"}) print(key, row.at(key));
  for (const Json& e : row.at("evidence")) {
    print("shown by", e.at("repository").get<std::string>() + " " +
                          e.at("file").get<std::string>() + " @ " +
                          e.at("commit").get<std::string>() + ": " + Names(e.at("shows")));
  }
  print("unproved", Names(row.at("unproved")));
  print("not_modelled", row.at("not_modelled"));
  for (const char* key : {"published", "model", "parameters"}) {
    PrintLabelled(key, 14, row.at(key).dump());
  }
}

}  // namespace

void AddPresets(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<PresetsOptions>();
  CLI::App* command = app.add_subcommand(
      "presets", "Print the published shapes of models that a configuration may name, or one");
  command->add_option("name", o->name, "One shape: source, numbers, what is not modelled")
      ->type_name("PRESET");
  command->add_option("--d-model", o->d_model, "Width to which the shape is scaled [64]")
      ->transform(WholeNumber(1, 1 << 20));
  command->add_option("--sequence", o->sequence, "Tokens of a sequence [128]")
      ->transform(WholeNumber(1, 1 << 20));
  command->add_flag("--json", o->json, "Print JSON");
  command->footer(
      "Example: DeepSeek-V3's experts at width 64\n"
      "  $ fp4lab presets deepseek-v3 | grep -o '\"experts\":[0-9]*'\n"
      "  \"experts\":256\n"
      "  \"experts\":64\n");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
