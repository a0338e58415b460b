#include "pack/forge.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "formats/route_trace.h"
#include "io/file.h"
#include "pack/forge_fill.h"
#include "pack/forge_routing.h"
#include "pack/forge_text.h"
#include "pack/gguf_writer.h"

namespace sluice {
namespace {

// Slots of the routing plan held in memory (6 bytes each); real shapes need a tenth.
constexpr uint64_t kPlanSlotsMax = uint64_t{8} << 20;

// A trace and its rows stay below 120 MB; 32 MiB are some 4,000 tokens of 48 layers.
constexpr uint64_t kTraceBytesMax = 32 * kMiB;

// Every code needs a dimension of its own and a token that does not end the generation.
uint32_t CodesMax(const ForgeShape& s, uint32_t used) {
  const uint64_t by_memory = kPlanSlotsMax / (uint64_t{s.layers} * used);
  const uint64_t codes = std::min<uint64_t>({s.hidden, s.text_tokens, by_memory});
  return static_cast<uint32_t>(std::max<uint64_t>(codes, 1));
}

Result<RouteTrace> ReadTrace(const std::string& path) {
  SLUICE_ASSIGN(const std::unique_ptr<File> file, File::Open(path));
  if (file->size() > kTraceBytesMax) {
    return Status(Code::kUsage,
                  fmt::format("{} are too much for a route trace", FormatBytes(file->size())), path,
                  fmt::format("the limit is {}", FormatBytes(kTraceBytesMax)));
  }
  std::vector<uint8_t> bytes(file->size());
  SLUICE_TRY(file->ReadExact(0, bytes));
  return ParseRouteTrace(bytes, path);
}

// With a trace, shape->used becomes the trace's.
Result<ForgeRouting> MakeRouting(const ForgeOptions& o, ForgeShape* shape) {
  if (o.trace_path.empty()) {
    return ForgeRouting::Uniform(*shape, CodesMax(*shape, shape->used), o.seed);
  }
  SLUICE_ASSIGN(RouteTrace trace, ReadTrace(o.trace_path));
  const uint32_t used = TraceUsed(trace);
  if (o.overrides.used && *o.overrides.used != used) {
    return Status(Code::kUsage,
                  fmt::format("{} experts per token are asked for, the trace has {}",
                              *o.overrides.used, used),
                  o.trace_path);
  }
  SLUICE_ASSIGN(ForgeRouting routing, ForgeRouting::FromTrace(*shape, CodesMax(*shape, used),
                                                              std::move(trace), o.trace_path));
  if (routing.tokens() > routing.codes()) {
    Log(LogLevel::kNotice,
        fmt::format("{}: {} of {} recorded tokens have a code of their own; the rest is left out",
                    o.trace_path, routing.codes(), routing.tokens()));
  }
  if (routing.borrowed() > 0) {
    Log(LogLevel::kNotice,
        fmt::format("{}: {} times a token has no record of a layer; its neighbour's is planted",
                    o.trace_path, routing.borrowed()));
  }
  shape->used = used;
  return routing;
}

void PutArchKeys(const ForgeShape& s, GgufHeaderWriter* h) {
  const auto key = [&](const char* name) { return s.arch + "." + name; };
  h->U32(key("block_count"), s.layers);
  h->U32(key("context_length"), s.context);
  h->U32(key("embedding_length"), s.hidden);
  h->U32(key("vocab_size"), s.vocab);
  const bool expert_only = s.kind == ForgeArch::kGptOss || s.kind == ForgeArch::kOlmoe;
  if (expert_only) h->U32(key("feed_forward_length"), s.expert_ff);
  if (s.dense_ff > 0) h->U32(key("feed_forward_length"), s.dense_ff);
  h->U32(key("attention.head_count"), s.heads);
  h->U32(key("attention.head_count_kv"), s.kv_heads);
  h->U32(key("attention.key_length"), s.head_dim);
  h->U32(key("attention.value_length"), s.head_dim);
  h->F32(key("attention.layer_norm_rms_epsilon"), s.rms_eps);
  h->U32(key("rope.dimension_count"), s.rope_dims);
  h->F32(key("rope.freq_base"), s.rope_theta);
  h->U32(key("expert_count"), s.experts);
  h->U32(key("expert_used_count"), s.used);
  h->U32(key("expert_feed_forward_length"), s.expert_ff);
  if (s.kind == ForgeArch::kGptOss) {
    h->U32(key("attention.sliding_window"), s.sliding_window);
    h->String(key("rope.scaling.type"), "yarn");
    h->F32(key("rope.scaling.factor"), 32);
    h->U32(key("rope.scaling.original_context_length"), 4096);
  }
  if (s.kind != ForgeArch::kQwen35Moe) return;
  h->U32(key("expert_shared_feed_forward_length"), s.shared_ff);
  h->U32(key("ssm.conv_kernel"), s.conv_kernel);
  h->U32(key("ssm.state_size"), s.delta_dim);
  h->U32(key("ssm.group_count"), s.key_heads);
  h->U32(key("ssm.time_step_rank"), s.value_heads);
  h->U32(key("ssm.inner_size"), s.value_heads * s.delta_dim);
  h->U32(key("full_attention_interval"), s.full_interval);
  // Time, height, width: for text all three positions are the same. 11, 11, 10 for 64 dimensions.
  const auto pairs = static_cast<int32_t>(s.rope_dims / 2), third = (pairs + 2) / 3;
  h->I32s(key("rope.dimension_sections"), {third, third, pairs - 2 * third, 0});
}

void PutKeys(const ForgeOptions& o, const ForgeShape& s, const ForgeRouting& routing,
             GgufHeaderWriter* h) {
  h->String("general.architecture", s.arch);
  h->String("general.type", "model");
  h->String("general.name", "Forged " + s.name);
  h->String("general.description",
            "Synthetic weights in the shape of a real model: for measuring "
            "speed and memory, not for answers.");
  h->U32("general.quantization_version", 2);
  PutArchKeys(s, h);
  h->U32("sluice.forge.codes", routing.codes());
  h->String("sluice.forge.routing", o.trace_path.empty() ? "uniform" : "trace");
  PutForgeTokenizer(MakeForgeVocabulary(s.text_tokens, s.vocab), h);
}

class Writing {
 public:
  Writing(const ForgeOptions& options, StreamFile* file, uint64_t total)
      : o_(options), file_(*file), total_(total), start_s_(NowSeconds()) {}

  Status Header(ByteSpan bytes) {
    done_ += bytes.size();
    return file_.Append(bytes);
  }

  Status Tensor(const ForgeTensor& tensor, ForgeContent* content) {
    for (uint64_t at = 0; at < tensor.bytes;) {
      if (o_.cancel != nullptr && *o_.cancel) return Status(Code::kFailed, "cancelled");
      MutableByteSpan space = file_.Space();
      const uint64_t n = std::min<uint64_t>(space.size(), tensor.bytes - at);
      content->Fill(tensor, at, space.subspan(0, n));
      SLUICE_TRY(file_.Advance(n));
      at += n;
      done_ += n;
      if (o_.progress) o_.progress({"forge", done_, total_, NowSeconds() - start_s_});
    }
    static constexpr uint8_t kPadding[kGgufAlignment] = {};
    const uint64_t pad = AlignUp(tensor.bytes, kGgufAlignment) - tensor.bytes;
    done_ += pad;
    return file_.Append(ByteSpan(kPadding, pad));
  }

 private:
  const ForgeOptions& o_;
  StreamFile& file_;
  const uint64_t total_;
  const double start_s_;
  uint64_t done_ = 0;
};

uint64_t ExpertBytes(const std::vector<ForgeTensor>& tensors, uint32_t experts) {
  uint64_t bytes = 0;
  for (const ForgeTensor& t : tensors) {
    if (t.layer == 0 && t.name.ends_with("_exps.weight")) bytes += t.bytes / experts;
  }
  return bytes;
}

// What the options decide before a byte of data exists.
struct Layout {
  ForgeShape shape;
  std::vector<ForgeTensor> tensors;
  ForgeRouting routing;
  std::vector<uint8_t> header;
  uint64_t file_bytes = 0;
};

Result<Layout> MakeLayout(const ForgeOptions& o) {
  SLUICE_ASSIGN(ForgeShape shape, FindForgeShape(o.shape, o.overrides));
  SLUICE_ASSIGN(const ForgeRecipe recipe,
                FindForgeRecipe(o.recipe.empty() ? shape.recipe : o.recipe));
  SLUICE_ASSIGN(std::vector<ForgeTensor> tensors, ForgeTensors(shape, recipe));
  SLUICE_ASSIGN(ForgeRouting routing, MakeRouting(o, &shape));
  GgufHeaderWriter header;
  PutKeys(o, shape, routing, &header);
  for (const ForgeTensor& t : tensors) header.Tensor(t.name, t.dims, t.type, t.bytes);
  std::vector<uint8_t> bytes = header.Build();
  const uint64_t file_bytes = bytes.size() + header.data_bytes();
  return Layout{std::move(shape), std::move(tensors), std::move(routing), std::move(bytes),
                file_bytes};
}

// The header at the start of fd, then a hole up to the size of the whole file.
Status WriteOutline(int fd, const Layout& layout, const std::string& path) {
  const std::vector<uint8_t>& header = layout.header;
  for (uint64_t done = 0; done < header.size();) {
    const ssize_t wrote =
        pwrite(fd, header.data() + done, header.size() - done, static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return Status(Code::kIo,
                    fmt::format("cannot write at offset {}: {}", done,
                                std::strerror(wrote < 0 ? errno : ENOSPC)),
                    path);
    }
    done += static_cast<uint64_t>(wrote);
  }
  if (ftruncate(fd, static_cast<off_t>(layout.file_bytes)) == 0) return Status();
  return Status(Code::kIo,
                fmt::format("cannot make a sparse file of {}: {}", FormatBytes(layout.file_bytes),
                            std::strerror(errno)),
                path);
}

}  // namespace

Result<ForgeReport> Forge(const ForgeOptions& o, const std::string& out_path) {
  const double start_s = NowSeconds();
  ForgeReport report;
  SLUICE_ASSIGN(const Layout layout, MakeLayout(o));
  const ForgeShape& shape = layout.shape;
  const ForgeRouting& routing = layout.routing;
  const std::vector<ForgeTensor>& tensors = layout.tensors;
  SLUICE_ASSIGN(ForgeContent content, ForgeContent::Make(shape, tensors, routing, o.seed));
  report.file_bytes = layout.file_bytes;
  SLUICE_ASSIGN(const std::unique_ptr<StreamFile> file,
                StreamFile::Create(out_path, report.file_bytes, o.free_bytes_min));
  Writing writing(o, file.get(), report.file_bytes);
  SLUICE_TRY(writing.Header(layout.header));
  for (const ForgeTensor& t : tensors) SLUICE_TRY(writing.Tensor(t, &content));
  SLUICE_TRY(file->Commit());

  report.tensors = static_cast<uint32_t>(tensors.size());
  report.layers = shape.layers;
  report.experts = shape.experts;
  report.used = shape.used;
  report.codes = routing.codes();
  report.prompt_tokens = routing.prompt_tokens();
  report.expert_bytes = ExpertBytes(tensors, shape.experts);
  report.direct = file->direct();
  report.seconds = NowSeconds() - start_s;
  return report;
}

Status ForgeOutline(const ForgeOptions& o, const std::string& path) {
  SLUICE_ASSIGN(const Layout layout, MakeLayout(o));
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Status(Code::kIo, fmt::format("cannot create: {}", std::strerror(errno)), path);
  }
  const Status status = WriteOutline(fd, layout, path);
  close(fd);
  return status;
}

}  // namespace sluice
