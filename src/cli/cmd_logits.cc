#include <fmt/format.h>

#include <bit>

#include "cli/console.h"
#include "cli/engine_args.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "sluice/session.h"

namespace sluice::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the .npy header says '<f4'");

// Header of the .npy format, version 1.0 (numpy.lib.format): padded to 64 bytes.
std::string NpyHeader(uint64_t rows, uint64_t columns) {
  std::string dict =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  constexpr size_t kPreamble = 10;
  const size_t total = (kPreamble + dict.size() + 1 + 63) / 64 * 64;
  dict.append(total - kPreamble - dict.size() - 1, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xFF);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

Status CheckIds(const std::vector<TokenId>& ids, uint32_t vocab, uint32_t context) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<uint32_t>(ids[i]) < vocab) continue;
    return Status(Code::kUsage,
                  fmt::format("token id {} (number {}) is not in the vocabulary", ids[i], i + 1),
                  "ids", fmt::format("ids go from 0 to {}", vocab - 1));
  }
  if (ids.size() <= context) return Status();
  return Status(Code::kContextFull,
                fmt::format("{} tokens do not fit the context of {}", ids.size(), context), "ids",
                fmt::format("--ctx {}", ids.size()));
}

}  // namespace

Status CmdLogits(const VerbArgs& words) {
  Args args("logits", "The logits of every given token: float32 [tokens, vocabulary] as .npy.");
  std::string model;
  std::optional<std::string> ids_text, ids_file, out_path;
  EngineOptions options;
  args.Positional("MODEL", &model, true, "a .gguf file or a Hugging Face folder");
  args.Text("--ids", &ids_text, "token ids: 1,2,3");
  args.Text("--ids-file", &ids_file, "file of ids, separated by commas or white space; - is stdin");
  args.Text("-o,--out", &out_path, "the .npy file; appears whole or not at all");
  AddEngineArgs(&args, &options);
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  if (ids_text.has_value() == ids_file.has_value()) {
    return Status(Code::kUsage, "give either --ids or --ids-file");
  }
  if (!out_path) return Status(Code::kUsage, "--out X.npy is missing");
  if (ids_file) {
    SLUICE_ASSIGN(ids_text, ReadAll(*ids_file));
  }
  SLUICE_ASSIGN(const std::vector<TokenId> ids, ParseIds(*ids_text));
  if (ids.empty()) return Status(Code::kUsage, "there are no token ids");

  const WorkScope work;
  options.need_text = false;
  options.progress = MakeProgressBar();
  SLUICE_ASSIGN(const auto engine, Engine::Open(model, options));
  SLUICE_TRY(CheckIds(ids, engine->vocab_size(), engine->context()));
  SLUICE_ASSIGN(const auto session, Session::Create(engine.get()));
  SLUICE_ASSIGN(AtomicFile out, AtomicFile::Create(*out_path));
  SLUICE_TRY(out.Write(NpyHeader(ids.size(), engine->vocab_size())));
  Status written;
  const auto row = [&](uint32_t, std::span<const float> logits) {
    if (!written.ok()) return;
    written = out.Write(
        ByteSpan(reinterpret_cast<const uint8_t*>(logits.data()), logits.size() * sizeof(float)));
    if (!written.ok()) CancelFlag()->store(true);  // no use computing what cannot be kept
  };
  const Status appended = session->Append(ids, row, CancelFlag());
  ClearProgressBar();
  SLUICE_TRY(written);
  SLUICE_TRY(appended);
  return out.Commit();
}

}  // namespace sluice::cli
