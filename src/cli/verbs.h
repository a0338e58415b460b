// The verbs of the command line: one cmd_<verb>.cc each.
//
// Contract: each takes the arguments after the verb and returns ok or the error that main prints;
// results go to stdout. Called once per process.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/args.h"

namespace sluice::cli {

using VerbArgs = std::vector<std::string>;

Status CmdRun(const VerbArgs& args);
Status CmdPlan(const VerbArgs& args);
Status CmdInspect(const VerbArgs& args);
Status CmdTokenize(const VerbArgs& args);
Status CmdRender(const VerbArgs& args);
Status CmdQuant(const VerbArgs& args);
Status CmdLogits(const VerbArgs& args);
Status CmdBench(const VerbArgs& args);
Status CmdForge(const VerbArgs& args);
Status CmdSimulate(const VerbArgs& args);
Status CmdCache(const VerbArgs& args);

// The whole program apart from main(): dispatch, help, exit code.
int Main(int argc, char** argv);

}  // namespace sluice::cli
