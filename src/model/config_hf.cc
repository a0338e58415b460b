// ConfigFromHf: config.json in either spelling (before and after transformers 5) to a ModelConfig.
// Fields and defaults: docs/architectures.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/limits.h"
#include "formats/hf_folder.h"
#include "formats/printable.h"
#include "model/config_common.h"
#include "model/config_hf_fields.h"

namespace sluice {
namespace {

using nlohmann::json;

std::string ClassName(const json& config) {
  const auto list = config.find("architectures");
  if (list == config.end() || !list->is_array() || list->empty()) return {};
  return list->front().is_string() ? list->front().get<std::string>() : std::string();
}
std::string TypeName(const json& config) {
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : std::string();
}

std::string FolderName(std::string path) {
  const size_t slash = path.find_last_of('/');
  return Printable(slash == std::string::npos ? path : path.substr(slash + 1));
}

class Builder {
 public:
  Builder(const HfFolder& folder, const json& text, const std::string& where,
          const RopeOverride& rope)
      : folder_(folder), where_(where), override_(rope), f_(text, where) {}

  Result<ModelConfig> Build(Arch arch, const std::string& type) {
    c_.arch = arch;
    type_ = type;
    traits_ = TraitsOf(arch);
    SLUICE_TRY(Refusals());
    Sizes();
    SLUICE_TRY(f_.status());
    SLUICE_TRY(Heads());
    SLUICE_TRY(Kinds());
    Moe();
    if (traits_.delta_net) Delta();
    if (traits_.mla) Mla();
    SLUICE_TRY(f_.status());
    SLUICE_TRY(Rope());
    Scales();
    SLUICE_TRY(f_.status());
    c_.arch_name = ClassName(folder_.config);
    if (c_.arch_name.empty()) c_.arch_name = TypeName(folder_.config);
    c_.name = FolderName(folder_.path);
    SLUICE_TRY(CheckConfig(c_, where_));
    return std::move(c_);
  }

 private:
  Status Bad(std::string what, std::string hint = {}) const {
    return Status(Code::kBadModel, std::move(what), where_, std::move(hint));
  }

  // Settings that would change the arithmetic and are not implemented.
  Status Refusals() {
    const bool gelu = c_.arch == Arch::kGemma3;
    const std::string act =
        f_.Text({"hidden_activation", "hidden_act"}, gelu ? "gelu_pytorch_tanh" : "silu");
    const bool known = gelu ? act == "gelu_pytorch_tanh" : act == "silu" || act == "swish";
    if (!known) return Bad(fmt::format("hidden_act '{}' is not supported", Printable(act)));
    if (traits_.gated_attention && !f_.Flag("attn_output_gate", true)) {
      return Bad("attn_output_gate false is not supported");
    }
    for (const json* holder : {&folder_.config, &f_.object()}) {
      const auto q = holder->find("quantization_config");
      if (q == holder->end() || !q->is_object()) continue;
      const auto method = q->find("quant_method");
      const std::string name = method != q->end() && method->is_string()
                                   ? method->get<std::string>()
                                   : std::string("unknown");
      if (name != "mxfp4" || c_.arch != Arch::kGptOss) {
        return Bad(fmt::format("weights quantised with '{}' are not supported", Printable(name)),
                   "use the unquantised checkpoint or a GGUF file");
      }
    }
    return Status();
  }

  void Sizes() {
    const bool gemma = c_.arch == Arch::kGemma3;  // published 4B and up leave class defaults out
    c_.layers = f_.Count({"num_hidden_layers"}, gemma ? 26 : 0);
    c_.hidden = f_.Count({"hidden_size"}, gemma ? 2304 : 0);
    c_.ff = f_.Count({"intermediate_size"}, gemma ? 9216 : 0);
    c_.vocab = f_.Count({"vocab_size"}, gemma ? 262208 : 0);
    c_.context =
        std::min(f_.Count({"max_position_embeddings"}, gemma ? 131072 : 4096), limits::kContextMax);
    const bool wide_eps = c_.arch == Arch::kGptOss || c_.arch == Arch::kOlmoe;
    c_.rms_eps = f_.Real({"rms_norm_eps"}, wide_eps ? 1e-5 : 1e-6);
    c_.norm_plus_one = traits_.one_plus;
    c_.mtp_layers = f_.Count({"mtp_num_hidden_layers", "num_nextn_predict_layers"}, 0);
    if (c_.layers == 0) f_.Missing("num_hidden_layers");
    if (c_.layers > limits::kLayersMax) f_.Fail("num_hidden_layers is too large");
    if (c_.hidden == 0) f_.Missing("hidden_size");
    if (c_.vocab == 0) f_.Missing("vocab_size");
    c_.tied_head = true;
    for (const char* name : {"lm_head.weight", "language_model.lm_head.weight"}) {
      if (folder_.catalog.Find(name) != nullptr) c_.tied_head = false;
    }
  }

  Status Heads() {
    const bool gemma = c_.arch == Arch::kGemma3;
    const uint32_t heads = f_.Count({"num_attention_heads"}, gemma ? 8 : 0);
    const uint32_t kv = f_.Count({"num_key_value_heads"}, gemma ? 4 : heads);
    SLUICE_TRY(f_.status());
    if (heads == 0) return Bad("num_attention_heads is missing or 0");
    c_.heads.assign(c_.layers, heads);
    c_.kv_heads.assign(c_.layers, traits_.mla ? 1 : kv);
    uint32_t head_dim = c_.hidden / heads;
    if (gemma || traits_.delta_net) head_dim = 256;
    if (c_.arch == Arch::kGptOss) head_dim = 64;
    c_.head_dim = c_.head_dim_v = f_.Count({"head_dim"}, head_dim);
    c_.layer_ff.assign(c_.layers, c_.ff);
    return f_.status();
  }

  Status Kinds() {
    c_.kinds.assign(c_.layers, LayerKind::kFull);
    const uint32_t window = c_.arch == Arch::kGemma3 ? 4096 : c_.arch == Arch::kGptOss ? 128 : 0;
    c_.sliding_window = f_.Count({"sliding_window"}, window);
    if (const json* list = f_.Find("layer_types")) {
      SLUICE_TRY(KindsFromList(*list));
    } else if (traits_.delta_net) {
      Every(f_.Count({"full_attention_interval"}, 4), LayerKind::kDeltaNet);
    } else if (c_.arch == Arch::kGemma3) {
      Every(f_.Count({"sliding_window_pattern", "_sliding_window_pattern"}, 6),
            LayerKind::kSliding);
    } else if (c_.arch == Arch::kGptOss) {
      Every(2, LayerKind::kSliding);
    } else if (type_ == "mistral" || type_ == "mixtral") {  // every layer, when set at all
      if (c_.sliding_window > 0) c_.kinds.assign(c_.layers, LayerKind::kSliding);
    } else if (f_.Flag("use_sliding_window", false) && c_.sliding_window > 0) {
      for (uint32_t i = f_.Count({"max_window_layers"}, c_.layers); i < c_.layers; ++i) {
        c_.kinds[i] = LayerKind::kSliding;
      }
    }
    const bool used = std::count(c_.kinds.begin(), c_.kinds.end(), LayerKind::kSliding) > 0;
    if (!used) c_.sliding_window = 0;
    return f_.status();
  }
  void Every(uint32_t n, LayerKind special) {
    if (n == 0) return f_.Fail("the layer pattern's period is 0");
    for (uint32_t i = 0; i < c_.layers; ++i) {
      if ((i + 1) % n != 0) c_.kinds[i] = special;
    }
  }
  Status KindsFromList(const json& list) {
    if (!list.is_array() || list.size() < c_.layers) {
      return Bad("layer_types does not name every layer");
    }
    for (uint32_t i = 0; i < c_.layers; ++i) {
      const std::string kind = list[i].is_string() ? list[i].get<std::string>() : "?";
      if (kind == "full_attention") continue;
      if (kind == "sliding_attention") {
        c_.kinds[i] = LayerKind::kSliding;
      } else if (kind == "linear_attention" && traits_.delta_net) {
        c_.kinds[i] = LayerKind::kDeltaNet;
      } else {
        return Bad(fmt::format("layer_types holds '{}' (layer {}), which is not supported",
                               Printable(kind), i));
      }
    }
    return Status();
  }

  void Moe() {
    MoeConfig& moe = c_.moe;
    // Dense architectures have no such layers, whatever a shared config class writes out.
    const bool dense = (c_.arch == Arch::kLlama && type_ != "mixtral") || c_.arch == Arch::kQwen2 ||
                       c_.arch == Arch::kQwen3 || c_.arch == Arch::kGemma3 ||
                       c_.arch == Arch::kGranite || c_.arch == Arch::kQwen35;
    if (dense) return;
    moe.experts = f_.Count({"num_local_experts", "num_experts", "n_routed_experts"}, 0);
    if (moe.experts == 0) return;
    moe.used = f_.Count({"num_experts_per_tok", "num_experts_per_token"}, 0);
    if (moe.used == 0) return f_.Missing("num_experts_per_tok");
    moe.expert_ff = f_.Count({"moe_intermediate_size"}, c_.ff);
    moe.shared_ff = f_.Count({"shared_expert_intermediate_size", "shared_intermediate_size"}, 0);
    switch (c_.arch) {
      case Arch::kGraniteMoe:
        moe.scores = RouterScores::kSoftmaxChosen;
        break;
      case Arch::kGptOss:
        moe.scores = RouterScores::kSoftmaxChosen;
        moe.router_bias = true;
        break;
      case Arch::kQwen35Moe:
        moe.normalise = true;  // no config entry
        moe.shared_gated = moe.shared_ff > 0;
        break;
      case Arch::kQwen3Next:
        moe.normalise = f_.Flag("norm_topk_prob", true);
        moe.shared_gated = moe.shared_ff > 0;
        break;
      case Arch::kDeepseek2:
        Deepseek();
        break;
      default:  // qwen3_moe, olmoe, mixtral (always normalised)
        moe.normalise = type_ == "mixtral" || f_.Flag("norm_topk_prob", false);
        break;
    }
    DenseLayers();
  }

  void Deepseek() {
    MoeConfig& moe = c_.moe;
    const bool v3 = type_ == "deepseek_v3";
    const std::string scoring = f_.Text({"scoring_func"}, v3 ? "sigmoid" : "softmax");
    const std::string method = f_.Text({"topk_method"}, v3 ? "noaux_tc" : "greedy");
    if (scoring != "softmax" && scoring != "sigmoid") {
      f_.Fail(fmt::format("scoring_func '{}' is not supported", Printable(scoring)));
    }
    if (method != "greedy" && method != "group_limited_greedy" && method != "noaux_tc") {
      f_.Fail(fmt::format("topk_method '{}' is not supported", Printable(method)));
    }
    if (scoring == "sigmoid") moe.scores = RouterScores::kSigmoid;
    moe.normalise = v3 && f_.Flag("norm_topk_prob", true);  // the V2 model class ignores it
    moe.router_bias = method == "noaux_tc";
    if (method != "greedy") {
      moe.groups = f_.Count({"n_group"}, 0);
      moe.groups_used = f_.Count({"topk_group"}, 0);
      moe.groups_by_top2 = method == "noaux_tc" && moe.groups > 1;
    }
    moe.weights_scale = f_.Real({"routed_scaling_factor"}, 1);
    const uint64_t shared = uint64_t{f_.Count({"n_shared_experts"}, 0)} * moe.expert_ff;
    moe.shared_ff = static_cast<uint32_t>(std::min<uint64_t>(shared, UINT32_MAX));
    moe.leading_dense_layers = std::min(f_.Count({"first_k_dense_replace"}, 0), c_.layers);
  }

  void DenseLayers() {
    MoeConfig& moe = c_.moe;
    std::vector<uint8_t> dense(c_.layers, 0);
    std::fill_n(dense.begin(), moe.leading_dense_layers, uint8_t{1});
    const uint32_t step = f_.Count({"decoder_sparse_step"}, 1);
    const uint32_t freq = c_.arch == Arch::kDeepseek2 ? f_.Count({"moe_layer_freq"}, 1) : 1;
    if (step == 0 || freq == 0) return f_.Fail("decoder_sparse_step or moe_layer_freq is 0");
    for (uint32_t i = 0; i < c_.layers; ++i) {
      if ((i + 1) % step != 0 || i % freq != 0) dense[i] = 1;
    }
    if (const json* list = f_.Find("mlp_only_layers")) {
      if (!list->is_array()) return f_.Fail("mlp_only_layers is not a list");
      for (const json& layer : *list) {
        if (!layer.is_number_integer()) return f_.Fail("mlp_only_layers holds no layer number");
        if (layer.get<uint64_t>() < c_.layers) dense[layer.get<uint64_t>()] = 1;
      }
    }
    if (std::count(dense.begin(), dense.end(), 1) > 0) moe.dense_layer = std::move(dense);
  }

  void Delta() {
    DeltaNetConfig& d = c_.delta;
    d.key_heads = f_.Count({"linear_num_key_heads"}, 16);
    d.value_heads = f_.Count({"linear_num_value_heads"}, 32);
    d.key_dim = f_.Count({"linear_key_head_dim"}, 128);
    d.value_dim = f_.Count({"linear_value_head_dim"}, 128);
    d.conv_kernel = f_.Count({"linear_conv_kernel_dim"}, 4);
    d.grouped_qkvz = d.grouped_ba = c_.arch == Arch::kQwen3Next;
  }

  void Mla() {
    MlaConfig& mla = c_.mla;
    mla.q_rank = f_.Count({"q_lora_rank"}, 0);
    mla.kv_rank = f_.Count({"kv_lora_rank"}, 0);
    mla.nope_dim = f_.Count({"qk_nope_head_dim"}, 0);
    mla.rope_dim = f_.Count({"qk_rope_head_dim"}, 0);
    mla.value_dim = f_.Count({"v_head_dim"}, 0);
    if (mla.kv_rank == 0) f_.Missing("kv_lora_rank");
    if (uint64_t{mla.nope_dim} + mla.rope_dim > limits::kHeadDimMax) {
      return f_.Fail("qk_nope_head_dim plus qk_rope_head_dim is too large");
    }
    c_.head_dim = mla.nope_dim + mla.rope_dim;
    c_.head_dim_v = mla.value_dim;
  }

  Status Rope() {
    const bool gemma = c_.arch == Arch::kGemma3;
    HfRopeDefaults defaults;
    defaults.theta = 10000;
    if (gemma || type_ == "mixtral") defaults.theta = 1e6;
    if (c_.arch == Arch::kGptOss) defaults.theta = 150000;
    defaults.partial = traits_.delta_net ? 0.25 : 1.0;
    defaults.context = c_.context;
    defaults.width = traits_.mla ? c_.mla.rope_dim : c_.head_dim;
    defaults.user = override_;
    SLUICE_ASSIGN(c_.rope, ReadHfRope(f_, gemma ? "full_attention" : "", defaults));
    c_.rope.adjacent =
        traits_.adjacent_hf && (type_ != "deepseek_v3" || f_.Flag("rope_interleave", true));
    SLUICE_TRY(WidenContext(override_, &c_));
    c_.rope_sliding = c_.rope;
    if (gemma) {
      SLUICE_ASSIGN(c_.rope_sliding, ReadHfRope(f_, "sliding_attention", defaults));
    }
    return Status();
  }

  void Scales() {
    double scale = 1 / std::sqrt(static_cast<double>(c_.head_dim));
    switch (c_.arch) {
      case Arch::kGemma3: {
        const double scalar = f_.Real({"query_pre_attn_scalar"}, 256);
        if (!(scalar > 0)) f_.Fail("query_pre_attn_scalar is not above 0");
        scale = 1 / std::sqrt(scalar);
        c_.embedding_scale = std::sqrt(static_cast<float>(c_.hidden));
        c_.final_softcap = f_.Real({"final_logit_softcapping"}, 0);
        break;
      }
      case Arch::kGranite:
      case Arch::kGraniteMoe:
        scale = f_.Real({"attention_multiplier"}, 1);
        c_.embedding_scale = f_.Real({"embedding_multiplier"}, 1);
        c_.residual_scale = f_.Real({"residual_multiplier"}, 1);
        c_.logit_scale = f_.Real({"logits_scaling"}, 1);
        break;
      case Arch::kDeepseek2:
        if (c_.rope.scaling != RopeScaling::kNone) {
          const double m = YarnMscale(HfRopeReal(f_, "mscale_all_dim", 0), c_.rope.factor);
          scale *= m * m;
        }
        break;
      case Arch::kOlmoe:
        c_.clamp_qkv = f_.Real({"clip_qkv"}, 0);
        break;
      case Arch::kGptOss:
        c_.swiglu_limit = f_.Real({"swiglu_limit"}, 7.0);
        c_.swiglu_alpha = f_.Real({"swiglu_alpha"}, 1.702);
        break;
      default:
        break;
    }
    c_.attention_scale = static_cast<float>(scale);
  }

  const HfFolder& folder_;
  const std::string& where_;
  const RopeOverride& override_;
  HfFields f_;
  ArchTraits traits_;
  std::string type_;  // model_type without "_text"
  ModelConfig c_;
};

}  // namespace

Result<ModelConfig> ConfigFromHf(const HfFolder& folder, const RopeOverride& rope) {
  const std::string where = folder.path + "/config.json";
  if (!folder.config.is_object()) {
    return Status(Code::kBadModel, "config.json is missing or no JSON object", folder.path);
  }
  // Vision checkpoints keep the language model's settings in a nested object.
  const auto nested = folder.config.find("text_config");
  const json& text = nested != folder.config.end() && nested->is_object() ? *nested : folder.config;
  const std::string outer_class = ClassName(folder.config);
  std::string type = TypeName(text);
  std::optional<Arch> arch = ArchFromHf(type);
  if (!arch) {
    type = TypeName(folder.config);
    arch = ArchFromHf(type);
  }
  if (!arch) arch = ArchFromHf(outer_class);
  if (!arch) {
    const std::string& name = !outer_class.empty() ? outer_class : type;
    return UnsupportedArchitecture(name.empty() ? "(none given)" : name, where);
  }
  if (type.ends_with("_text")) type.resize(type.size() - 5);
  if (type.empty()) {  // only the class is named
    if (outer_class.starts_with("Mixtral")) type = "mixtral";
    if (outer_class.starts_with("Mistral")) type = "mistral";
    if (outer_class.starts_with("DeepseekV3")) type = "deepseek_v3";
  }
  return Builder(folder, text, where, rope).Build(*arch, type);
}

}  // namespace sluice
