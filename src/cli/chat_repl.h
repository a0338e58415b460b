// The interactive chat of `sluice run`: prompts, /commands, streamed answers.
//
// Contract: runs until /quit, Ctrl-D or two Ctrl-C at the prompt. An error of one turn is printed
// and the conversation goes on with its history as before. Answers go to stdout, all else to
// stderr.
#pragma once

#include <string>

#include "base/status.h"
#include "sluice/generate.h"

namespace sluice::cli {

struct ChatSettings {
  GenerateOptions generate;      // on_text and cancel are set by the chat
  bool stats = false;            // print the summary at the end
  std::string session_path;      // saved there after each change and at the end; empty: not
  bool resumed = false;          // it came from there
  bool private_session = false;  // refuses to save
};

// The error of the last attempt to save is the result, else ok.
Status RunChat(Engine* engine, Chat* chat, ChatSettings settings);

}  // namespace sluice::cli
