// The program: one subcommand a file; this one catches what they throw.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "fp4lab/base/error.h"
#include "fp4lab/base/simd.h"
#include "tools/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"fp4lab: the numerics of 4-bit LLM training"};
  app.require_subcommand(1);
  int exit_code = 0;
  fp4lab::tools::AddFormats(app, &exit_code);
  fp4lab::tools::AddTrain(app, &exit_code);
  fp4lab::tools::AddStudyReport(app);
  try {
    fp4lab::PinSimdTargetFromEnvironment();
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return exit_code;
}
