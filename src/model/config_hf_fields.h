// Typed reads from a config.json object, and RoPE settings in both spellings.
//
// Contract: the object outlives the reader. The first failure is kept (field named) and later reads
// return their defaults, so that a run of reads is checked once. null counts as absent.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "model/config.h"

namespace sluice {

class HfFields {
 public:
  HfFields(const nlohmann::json& object, const std::string& where)
      : object_(object), where_(where) {}

  const nlohmann::json& object() const { return object_; }
  const std::string& where() const { return where_; }
  const Status& status() const { return status_; }
  const nlohmann::json* Find(const char* name) const;  // nullptr when absent or null

  // The first of the names that is present.
  uint32_t Count(std::initializer_list<const char*> names, uint32_t fallback);
  float Real(std::initializer_list<const char*> names, double fallback);
  std::string Text(std::initializer_list<const char*> names, std::string fallback);
  bool Flag(const char* name, bool fallback);

  void Fail(std::string what);
  void Missing(const char* name);

 private:
  const nlohmann::json& object_;
  const std::string where_;
  Status status_;
};

struct HfRopeDefaults {
  double theta = 10000;
  double partial = 1.0;
  uint32_t context = 0;  // original context where none is given
  uint32_t width = 0;    // head size that the rotated share is taken of
  RopeOverride user;     // of all but sliding layers with settings of their own
};

// kind: "" for one setting for all layers, else gemma3's "full_attention" or "sliding_attention".
Result<RopeConfig> ReadHfRope(HfFields& fields, const std::string& kind,
                              const HfRopeDefaults& defaults);

// A number of the scaling settings ("mscale_all_dim") in either spelling; fallback when absent.
double HfRopeReal(HfFields& fields, const char* name, double fallback);

}  // namespace sluice
