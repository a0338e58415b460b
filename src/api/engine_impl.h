// Engine::Impl: the core, and the text model when the engine was opened with one.
//
// Contract: private to the api room.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/session_file.h"
#include "api/text_model.h"
#include "runtime/engine_core.h"
#include "runtime/model_digest.h"
#include "sluice/engine.h"

namespace sluice {

struct Engine::Impl {
  std::unique_ptr<TextModel> text;
  std::string defaults = "{}";
  std::vector<std::string> notices;  // beside the core's
  ModelDigest digest;
  std::unique_ptr<EngineCore> core;
  std::vector<int> cpus;                   // --cpus, for what is measured beside the core
  std::atomic<double> int8_peak_gops = 0;  // of the last MeasureMachine
  std::mutex identity_mutex;
  std::optional<ModelIdentity> identity;

  // Read once, when somebody asks.
  Result<ModelIdentity> Identity();
};

}  // namespace sluice
