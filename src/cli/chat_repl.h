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
  std::string system;
  ContextFull context_full = ContextFull::kDrop;
  RenderOptions render;
  GenerateOptions generate;  // on_text and cancel are set by the chat
  bool stats = false;        // print the summary at the end
};

Status RunChat(Engine* engine, ChatSettings settings);

}  // namespace sluice::cli
