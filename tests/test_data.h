// Where files outside the repository are: shared references and cases, models that setup fetches.
//
// Contract: for tests. $SLUICE_SHARED (default ../shared beside the checkout) and $SLUICE_MODELS
// (default ~/.cache/sluice); an empty variable counts as none. Nothing is said about what is there:
// a test that needs a file skips loudly when it is absent.
#pragma once

#include <cstdlib>
#include <string>

namespace sluice::test {

inline std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

inline std::string SharedPath(const std::string& below) {
  const std::string folder = Environment("SLUICE_SHARED");
  return (folder.empty() ? SLUICE_SOURCE_DIR "/../shared" : folder) + "/" + below;
}

inline std::string ModelPath(const std::string& below) {
  const std::string folder = Environment("SLUICE_MODELS");
  return (folder.empty() ? Environment("HOME") + "/.cache/sluice" : folder) + "/" + below;
}

// The small instruct model.
inline std::string DefaultModelPath() { return ModelPath("SmolLM2-135M-Instruct.Q4_1.gguf"); }

}  // namespace sluice::test
