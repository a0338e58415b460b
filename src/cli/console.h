// Standard error and standard output: errors, notices, the progress bar, checked results.
//
// Contract: results go to stdout, all else to stderr. No colour and no bar when stderr is no
// terminal or NO_COLOR is set. An output that cannot be written (full disk, closed pipe) is an
// error, never silence. The progress function may be called from another thread, but one call at a
// time.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "sluice/types.h"

namespace sluice::cli {

bool IsTerminal(int fd);

// `sluice: error: WHAT (WHERE); HINT`; returns the exit code. At a terminal, errors and notices
// leave the line that an answer is being written on.
int Fail(const Status& status);
void Notice(std::string_view text);

// Wraps text in an escape sequence when stderr is a coloured terminal.
std::string Dim(std::string_view text);
std::string Bold(std::string_view text);

// Writes to stdout at once. kIo when it cannot be written.
Status Out(std::string_view text);
// Whether the terminal stands behind text that Out wrote without a line end.
bool MidLine();

// A bar on stderr with percentage and ETA; empty function when stderr is no terminal.
ProgressFn MakeProgressBar();
// Removes the bar's line, if one is shown.
void ClearProgressBar();

// "41 ms", "12 s", "3 min 20 s".
std::string FormatDuration(double seconds);

}  // namespace sluice::cli
