// Engine::Impl: the core, and the text model when the engine was opened with one.
//
// Contract: private to the api room.
#pragma once

#include <memory>
#include <string>

#include "api/text_model.h"
#include "runtime/engine_core.h"
#include "sluice/engine.h"

namespace sluice {

struct Engine::Impl {
  std::unique_ptr<TextModel> text;
  std::string defaults = "{}";
  std::unique_ptr<EngineCore> core;
};

}  // namespace sluice
