// Where Sluice keeps what it remembers between runs.
//
// Contract: reads XDG_STATE_HOME and HOME, as the XDG base directory specification has it; empty
// when neither says anything.
#pragma once

#include <string>

namespace sluice::cli {

std::string DefaultStateDir();

}  // namespace sluice::cli
