#include "model/config_hf_fields.h"

#include <fmt/format.h>

#include <cmath>

#include "formats/hf_folder.h"
#include "formats/printable.h"
#include "model/config_common.h"

namespace sluice {
namespace {

using nlohmann::json;

const json* FindIn(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// The object that holds type and factor: rope_parameters (nested per layer kind for gemma3), or
// rope_scaling.
const json& ScalingObject(const HfFields& fields, const std::string& kind) {
  static const json empty = json::object();
  if (const json* parameters = fields.Find("rope_parameters")) {
    const json* nested = kind.empty() ? nullptr : FindIn(*parameters, kind.c_str());
    return nested != nullptr ? *nested : *parameters;
  }
  if (kind == "sliding_attention") return empty;  // older spelling: never scaled
  const json* scaling = fields.Find("rope_scaling");
  return scaling != nullptr ? *scaling : empty;
}

Status ReadYarn(HfFields& s, RopeConfig* rope) {
  rope->scaling = RopeScaling::kYarn;
  rope->beta_fast = s.Real({"beta_fast"}, 32);
  rope->beta_slow = s.Real({"beta_slow"}, 1);
  rope->truncate = s.Flag("truncate", true);
  const double mscale = s.Real({"mscale"}, 0), all = s.Real({"mscale_all_dim"}, 0);
  double attn = YarnMscale(1, rope->factor);
  if (mscale != 0 && all != 0) {
    attn = YarnMscale(mscale, rope->factor) / YarnMscale(all, rope->factor);
  }
  rope->attn_factor = s.Real({"attention_factor"}, attn);
  return s.status();
}

}  // namespace

const json* HfFields::Find(const char* name) const { return FindIn(object_, name); }

void HfFields::Fail(std::string what) {
  if (status_.ok()) status_ = Status(Code::kBadModel, std::move(what), where_);
}
void HfFields::Missing(const char* name) { Fail(fmt::format("'{}' is missing or 0", name)); }

uint32_t HfFields::Count(std::initializer_list<const char*> names, uint32_t fallback) {
  for (const char* name : names) {
    const json* value = Find(name);
    if (value == nullptr) continue;
    if (value->is_number_integer()) {
      const bool fits = value->is_number_unsigned()
                            ? value->get<uint64_t>() <= UINT32_MAX
                            : value->get<int64_t>() >= 0 && value->get<int64_t>() <= UINT32_MAX;
      if (fits) return static_cast<uint32_t>(value->get<uint64_t>());
    }
    if (value->is_number_float()) {  // 4096.0
      const double real = value->get<double>();
      if (real >= 0 && real <= UINT32_MAX && real == std::floor(real)) {
        return static_cast<uint32_t>(real);
      }
    }
    Fail(fmt::format("'{}' is not a whole number below 2^32", name));
    return fallback;
  }
  return fallback;
}

float HfFields::Real(std::initializer_list<const char*> names, double fallback) {
  for (const char* name : names) {
    const json* value = Find(name);
    if (value == nullptr) continue;
    if (value->is_number() && std::isfinite(static_cast<float>(value->get<double>()))) {
      return static_cast<float>(value->get<double>());
    }
    Fail(fmt::format("'{}' is not a finite number", name));
    break;
  }
  return static_cast<float>(fallback);
}

std::string HfFields::Text(std::initializer_list<const char*> names, std::string fallback) {
  for (const char* name : names) {
    const json* value = Find(name);
    if (value == nullptr) continue;
    if (value->is_string()) return value->get<std::string>();
    Fail(fmt::format("'{}' is not a string", name));
    break;
  }
  return fallback;
}

bool HfFields::Flag(const char* name, bool fallback) {
  const json* value = Find(name);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(fmt::format("'{}' is not true or false", name));
  return fallback;
}

double HfRopeReal(HfFields& fields, const char* name, double fallback) {
  HfFields scaling(ScalingObject(fields, ""), fields.where());
  const double value = scaling.Real({name}, fallback);
  if (!scaling.status().ok()) fields.Fail(scaling.status().what());
  return value;
}

Result<RopeConfig> ReadHfRope(HfFields& fields, const std::string& kind,
                              const HfRopeDefaults& defaults) {
  const bool sliding = kind == "sliding_attention";
  HfFields s(ScalingObject(fields, kind), fields.where());
  RopeConfig rope;
  // A theta beside the scaling settings wins; gemma3's sliding layers have a name of their own.
  const double outer = sliding ? fields.Real({"rope_local_base_freq"}, 10000)
                               : fields.Real({"rope_theta"}, defaults.theta);
  const RopeOverride user = sliding ? RopeOverride() : defaults.user;
  rope.theta = user.theta != 0 ? user.theta : s.Real({"rope_theta"}, outer);
  const double partial =
      s.Real({"partial_rotary_factor"}, fields.Real({"partial_rotary_factor"}, defaults.partial));
  if (!(partial > 0) || partial > 1) fields.Fail("'partial_rotary_factor' is not in (0, 1]");
  SLUICE_TRY(fields.status());
  rope.dims = static_cast<uint32_t>(defaults.width * partial);
  rope.original_context = s.Count({"original_max_position_embeddings"},
                                  fields.Count({"original_max_position_embeddings"}, 0));
  if (user.original_context != 0) rope.original_context = user.original_context;

  std::string type = s.Text({"rope_type", "type"}, "default");
  const float factor = user.factor != 0 ? user.factor : s.Real({"factor"}, 0);
  SLUICE_TRY(CheckOverride(user, factor, fields.where()));
  if (type == "default" && user.factor != 0) type = "linear";
  if (user.scaling) type = RopeScalingName(*user.scaling);
  if (type == "none") type = "default";
  if (type == "default" || type == "mrope") return rope;
  if (type != "linear" && type != "llama3" && type != "yarn") {
    return Status(Code::kBadModel, fmt::format("rope_type '{}' is not supported", Printable(type)),
                  fields.where());
  }
  if (rope.original_context == 0) rope.original_context = defaults.context;
  rope.factor = factor;
  if (rope.factor == 0 && type == "yarn" && rope.original_context > 0) {
    rope.factor = static_cast<float>(defaults.context) / static_cast<float>(rope.original_context);
  }
  if (rope.factor == 0) s.Missing("factor");
  if (type == "linear") rope.scaling = RopeScaling::kLinear;
  if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = s.Real({"low_freq_factor"}, 1);
    rope.high_freq_factor = s.Real({"high_freq_factor"}, 4);
  }
  SLUICE_TRY(s.status());
  if (type == "yarn") SLUICE_TRY(ReadYarn(s, &rope));
  SLUICE_TRY(fields.status());
  return rope;
}

}  // namespace sluice
