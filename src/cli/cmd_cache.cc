#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "cli/console.h"
#include "cli/report.h"
#include "cli/state_dir.h"
#include "cli/verbs.h"
#include "sluice/engine.h"
#include "sluice/prefix_cache.h"

namespace sluice::cli {
namespace {

struct Options {
  std::string verb, state_dir;
  std::vector<std::string> names;
  bool all = false, json = false;
};

const char* KindOf(const PrefixCacheEntry& e) { return e.checkpoint ? "state" : "page"; }

std::string LocalTime(int64_t unix_s) {
  const time_t seconds = unix_s;
  tm parts{};
  char text[32] = "?";
  if (localtime_r(&seconds, &parts) != nullptr)
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

// The texts come from a file that anyone may have written: no control characters on a terminal.
std::string Shown(const std::string& text, size_t columns) {
  std::string out = text.substr(0, columns);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return out.empty() ? "?" : out;
}

// "SmolLM2 135M 8k 40645cbd": the name that the model gives itself and the beginning of its hash.
std::string ShownModel(const std::string& text) {
  const size_t space = text.rfind(' ');
  if (space == std::string::npos) return Shown(text, 30);
  return Shown(text.substr(0, space), 21) + " " + Shown(text.substr(space + 1), 8);
}

nlohmann::ordered_json EntryJson(const PrefixCacheEntry& e) {
  return {{"name", e.name},
          {"model", e.model},
          {"kv", e.kv},
          {"kind", KindOf(e)},
          {"tokens", e.tokens},
          {"bytes", e.bytes},
          {"used_unix_s", e.used_unix_s}};
}

nlohmann::ordered_json EntriesJson(const std::vector<PrefixCacheEntry>& entries) {
  auto rows = nlohmann::ordered_json::array();
  for (const PrefixCacheEntry& e : entries) rows.push_back(EntryJson(e));
  return rows;
}

std::string EntriesTable(const std::vector<PrefixCacheEntry>& entries) {
  std::string out = fmt::format("{:<30} {:<5} {:<5} {:>7} {:>10}  {:<19}  {}\n", "model", "kv",
                                "kind", "tokens", "size", "last used", "name");
  for (const PrefixCacheEntry& e : entries) {
    out += fmt::format("{:<30} {:<5} {:<5} {:>7} {:>10}  {:<19}  {}\n", ShownModel(e.model),
                       Shown(e.kv, 5), KindOf(e), e.tokens, FormatBytes(e.bytes),
                       LocalTime(e.used_unix_s), e.name);
  }
  return out;
}

Status List(const Options& o) {
  SLUICE_ASSIGN(const std::vector<PrefixCacheEntry> entries, ListPrefixCache(o.state_dir));
  if (o.json) return Out(Dump({{"entries", EntriesJson(entries)}}) + "\n");
  return Out(entries.empty() ? "the prefix store is empty\n" : EntriesTable(entries));
}

Status Remove(const Options& o) {
  if (o.all != o.names.empty())
    return Status(Code::kUsage, o.all ? "names and --all" : "no name and no --all", "cache rm",
                  "want sluice cache rm NAME... or sluice cache rm --all");
  SLUICE_ASSIGN(const uint64_t count, RemoveFromPrefixCache(o.state_dir, o.names));
  SLUICE_TRY(Out(o.json ? Dump({{"removed", count}}) + "\n"
                        : fmt::format("{} {} removed\n", count, count == 1 ? "entry" : "entries")));
  if (count < o.names.size())
    return Status(
        Code::kUsage,
        fmt::format("{} of {} names are not there", o.names.size() - count, o.names.size()),
        PrefixCacheDir(o.state_dir), "as `sluice cache ls` prints them");
  return Status();
}

Status Verify(const Options& o) {
  Result<PrefixCacheVerdict> checked = VerifyPrefixCache(o.state_dir, MakeProgressBar());
  ClearProgressBar();
  SLUICE_TRY(checked.status());
  const PrefixCacheVerdict& verdict = *checked;
  if (o.json) {
    SLUICE_TRY(Out(Dump({{"entries", verdict.entries},
                         {"bytes", verdict.bytes},
                         {"damaged", EntriesJson(verdict.damaged)}}) +
                   "\n"));
  } else {
    for (const PrefixCacheEntry& e : verdict.damaged)
      SLUICE_TRY(Out("damaged, deleted: " + e.name + "\n"));
    SLUICE_TRY(Out(fmt::format("{} entries, {}, {} damaged\n", verdict.entries,
                               FormatBytes(verdict.bytes), verdict.damaged.size())));
  }
  if (verdict.damaged.empty()) return Status();
  return Status(Code::kIo,
                fmt::format("{} of {} entries were damaged and are deleted", verdict.damaged.size(),
                            verdict.entries),
                PrefixCacheDir(o.state_dir), "what they held is computed again when needed");
}

Status Stat(const Options& o) {
  SLUICE_ASSIGN(const std::vector<PrefixCacheEntry> entries, ListPrefixCache(o.state_dir));
  uint64_t bytes = 0, pages = 0;
  for (const PrefixCacheEntry& e : entries) {
    bytes += e.bytes;
    pages += e.checkpoint ? 0 : 1;
  }
  const std::string dir = PrefixCacheDir(o.state_dir);
  const uint64_t limit = EngineOptions().prefix_store_bytes;
  if (o.json) {
    return Out(Dump({{"dir", dir},
                     {"entries", entries.size()},
                     {"pages", pages},
                     {"states", entries.size() - pages},
                     {"bytes", bytes},
                     {"limit_bytes", limit}}) +
               "\n");
  }
  return Out(fmt::format(
      "{}\n  entries  {} ({} pages, {} states)\n  bytes    {}\n  limit    {} "
      "(the default)\n",
      dir, entries.size(), pages, entries.size() - pages, FormatBytes(bytes), FormatBytes(limit)));
}

}  // namespace

Status CmdCache(const VerbArgs& words) {
  Args args("cache", "What is kept of prompts between runs: ls, rm NAME... | --all, verify, stat.");
  Options o;
  o.state_dir = DefaultStateDir();
  args.Positional("VERB", &o.verb, true, "ls, rm, verify or stat");
  args.Positionals("NAMES", &o.names, "entries to remove, as ls prints them");
  args.Flag("--all", &o.all, "rm: every entry");
  args.Value(
      "--state-dir", "DIR",
      [&o](const std::string& value) {
        o.state_dir = value;
        return Status();
      },
      "what is remembered between runs (default: ~/.local/state/sluice)");
  args.Flag("--json", &o.json, "as JSON");
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  if (o.state_dir.empty())
    return Status(Code::kUsage, "there is no state folder", "", "name one with --state-dir");
  if (o.verb == "rm") return Remove(o);
  if (!o.names.empty() || o.all)
    return Status(Code::kUsage, "names and --all belong to rm", "cache " + o.verb);
  if (o.verb == "ls") return List(o);
  if (o.verb == "verify") return Verify(o);
  if (o.verb == "stat") return Stat(o);
  return Status(Code::kUsage, fmt::format("'{}' is none of ls, rm, verify and stat", o.verb));
}

}  // namespace sluice::cli
