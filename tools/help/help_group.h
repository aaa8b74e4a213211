// Options in groups of the help.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>

namespace fp4lab::tools {

// While it lives, options that are added to `command` stand in the group `name`.
class HelpGroup {
 public:
  HelpGroup(CLI::App* command, const char* name)
      : defaults_(command->option_defaults()), before_(defaults_->get_group()) {
    defaults_->group(name);
  }
  ~HelpGroup() { defaults_->group(before_); }
  HelpGroup(const HelpGroup&) = delete;
  HelpGroup& operator=(const HelpGroup&) = delete;

 private:
  CLI::OptionDefaults* defaults_;
  std::string before_;
};

// Moves options that `command` has into the group `name`.
inline void PutInGroup(CLI::App* command, const char* name,
                       std::initializer_list<const char*> options) {
  for (const char* option : options) command->get_option(option)->group(name);
}

// The groups that several commands have.
inline constexpr const char* kInputGroup = "The matrix";
inline constexpr const char* kBytesGroup = "The kernel's bytes";
inline constexpr const char* kDialectGroup = "The dialect";
inline constexpr const char* kLayoutGroup = "The layout of the bytes";
inline constexpr const char* kReadLayoutGroup = "The layout of the file that is read";
inline constexpr const char* kCasesGroup = "The cases";
inline constexpr const char* kProductGroup = "The product";
inline constexpr const char* kTextGroup = "The text";
inline constexpr const char* kReportGroup = "The report";

}  // namespace fp4lab::tools
