#include <fmt/format.h>

#include <bit>

#include "cli/console.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "sluice/quant.h"

namespace sluice::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "raw float32 files are little-endian");

// Blocks converted at a time: bounds the memory for files of any size.
constexpr uint64_t kBlocksPerPass = 4096;

struct Options {
  std::string verb, in, out;
  std::optional<std::string> type;
};

Status Convert(const Options& o, const QuantFormat& format) {
  const bool decode = o.verb == "decode";
  SLUICE_ASSIGN(InputFile in, InputFile::Open(o.in));
  const uint64_t values_bytes = uint64_t{format.block_elems} * sizeof(float);
  const uint64_t unit = decode ? format.block_bytes : values_bytes;
  if (in.size() % unit != 0) {
    return Status(
        Code::kUsage, fmt::format("{} bytes are no whole number of blocks", in.size()), o.in,
        fmt::format("{} wants a multiple of {} bytes ({})", format.name, unit,
                    decode ? "one block" : fmt::format("{} float32 values", format.block_elems)));
  }
  SLUICE_ASSIGN(AtomicFile out, AtomicFile::Create(o.out));
  const uint64_t blocks = in.size() / unit;
  std::vector<uint8_t> raw;
  std::vector<float> values;
  const WorkScope work;
  for (uint64_t done = 0; done < blocks;) {
    if (*CancelFlag()) return Status(Code::kFailed, "cancelled", o.out);
    const uint64_t n = std::min(blocks - done, kBlocksPerPass);
    raw.resize(n * format.block_bytes);
    values.resize(n * format.block_elems);
    const MutableByteSpan value_bytes(reinterpret_cast<uint8_t*>(values.data()), n * values_bytes);
    SLUICE_TRY(in.ReadExact(decode ? MutableByteSpan(raw) : value_bytes));
    SLUICE_TRY(decode ? DecodeBlocks(format, raw, values) : EncodeBlocks(format, values, raw));
    SLUICE_TRY(out.Write(decode ? ByteSpan(value_bytes) : ByteSpan(raw)));
    done += n;
  }
  return out.Commit();
}

}  // namespace

Status CmdQuant(const VerbArgs& words) {
  Args args("quant", "Raw blocks of a weight type to little-endian float32 and back.");
  Options o;
  args.Positional("VERB", &o.verb, true, "decode (blocks to float32) or encode");
  args.Positional("IN", &o.in, true, "input file");
  args.Positional("OUT", &o.out, true, "output file; appears whole or not at all");
  args.Text("--type", &o.type, "weight type, such as Q4_K");
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  if (o.verb != "decode" && o.verb != "encode") {
    return Status(Code::kUsage, fmt::format("'{}' is neither decode nor encode", o.verb));
  }
  if (!o.type) return Status(Code::kUsage, "--type is missing", "", "such as --type Q4_K");
  SLUICE_ASSIGN(const QuantFormat format, FindQuantFormat(*o.type));
  if (o.verb == "decode" ? !format.decodes : !format.encodes) {
    return Status(Code::kUsage, fmt::format("the type {} cannot be {}d", format.name, o.verb));
  }
  return Convert(o, format);
}

}  // namespace sluice::cli
