#include "cli/args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

namespace sluice::cli {
namespace {

Status Usage(std::string what, std::string hint = {}) {
  return Status(Code::kUsage, std::move(what), {}, std::move(hint));
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

// The text an error may show of an argument: short, and one line.
std::string Shown(std::string_view text) {
  std::string out(text.substr(0, 40));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return "'" + out + (text.size() > 40 ? "...'" : "'");
}

}  // namespace

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = candidate.starts_with(word) ? 1 : EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Result<int64_t> ParseInt(const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stop != end || error == std::errc::invalid_argument) {
    return Usage(fmt::format("{} is not a whole number", Shown(text)));
  }
  if (error != std::errc() || value < low || value > high) {
    return Usage(fmt::format("{} is out of range", Shown(text)),
                 fmt::format("want {} to {}", low, high));
  }
  return value;
}

Result<uint64_t> ParseUnsigned(const std::string& text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stop != end || error != std::errc()) {
    return Usage(fmt::format("{} is not a whole number from 0 to 2^64-1", Shown(text)));
  }
  return value;
}

Result<double> ParseNumber(const std::string& text, double low, double high) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stop != end || error == std::errc::invalid_argument || std::isnan(value)) {
    return Usage(fmt::format("{} is not a number", Shown(text)));
  }
  if (error != std::errc() || value < low || value > high) {
    return Usage(fmt::format("{} is out of range", Shown(text)),
                 fmt::format("want {} to {}", low, high));
  }
  return value;
}

Result<std::vector<TokenId>> ParseIds(std::string_view text) {
  std::vector<TokenId> ids;
  const std::string_view separators = ", \t\r\n";
  size_t at = 0;
  while ((at = text.find_first_not_of(separators, at)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    const std::string word(text.substr(at, end - at));
    const Result<int64_t> id = ParseInt(word, 0, INT32_MAX);
    if (!id.ok()) {
      return Usage(fmt::format("token id {} (number {}) is not an id", Shown(word), ids.size() + 1),
                   "ids are whole numbers >= 0, separated by commas");
    }
    ids.push_back(static_cast<TokenId>(*id));
    at = end;
  }
  return ids;
}

Result<std::vector<int>> ParseCpus(const std::string& text) {
  std::vector<int> cpus;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t dash = part.find('-');
    SLUICE_ASSIGN(const int64_t first, ParseInt(part.substr(0, dash), 0, 4095));
    int64_t last = first;
    if (dash != std::string::npos) {
      SLUICE_ASSIGN(last, ParseInt(part.substr(dash + 1), first, 4095));
    }
    for (int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    at = end + 1;
  }
  return cpus;
}

struct Args::Impl {
  CLI::App app;
  std::vector<std::string> long_names;
  struct Required {
    std::string name;
    const std::string* value;
  };
  std::vector<Required> required;
  Status error;  // the first setter that failed
};

Args::Args(std::string verb, std::string summary)
    : impl_(std::make_unique<Impl>()), verb_(std::move(verb)) {
  CLI::App& app = impl_->app;
  app.name("sluice " + verb_);
  app.description(std::move(summary));
  app.set_help_flag("-h,--help", "this text");
  app.allow_extras();
  app.get_formatter()->column_width(34);
  impl_->long_names.push_back("--help");
}
Args::~Args() = default;

void Args::Positional(const std::string& name, std::string* out, bool required,
                      const std::string& help) {
  impl_->app.add_option_function<std::string>(
      name, [out](const std::string& value) { *out = value; }, help);
  if (required) impl_->required.push_back({name, out});
}

void Args::Positionals(const std::string& name, std::vector<std::string>* out,
                       const std::string& help) {
  impl_->app.add_option_function<std::vector<std::string>>(
      name, [out](const std::vector<std::string>& values) { *out = values; }, help);
}

void Args::Flag(const std::string& names, bool* out, const std::string& help) {
  CLI::Option* option = impl_->app.add_flag_function(
      names, [out](int64_t count) { *out = count > 0; }, help);
  option->group(group_)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const std::string& name : option->get_lnames()) impl_->long_names.push_back("--" + name);
}

void Args::Add(const std::string& names, const std::string& kind, Setter setter, bool all,
               const std::string& help) {
  const auto callback = [this, names, setter = std::move(setter)](const CLI::results_t& values) {
    for (const std::string& value : values) {
      const Status status = setter(value);
      if (status.ok() || !impl_->error.ok()) continue;
      const std::string name = names.substr(names.find_last_of(',') + 1);
      impl_->error =
          Status(status.code(), name + ": " + status.what(), status.where(), status.hint());
    }
    return true;
  };
  CLI::Option* option = impl_->app.add_option(names, callback, help);
  option->type_name(kind)->type_size(1)->group(group_);
  option->multi_option_policy(all ? CLI::MultiOptionPolicy::TakeAll
                                  : CLI::MultiOptionPolicy::TakeLast);
  option->allow_extra_args(false);
  for (const std::string& name : option->get_lnames()) impl_->long_names.push_back("--" + name);
}

void Args::Value(const std::string& names, const std::string& kind, Setter setter,
                 const std::string& help) {
  Add(names, kind, std::move(setter), false, help);
}

void Args::Values(const std::string& names, const std::string& kind, Setter setter,
                  const std::string& help) {
  Add(names, kind, std::move(setter), true, help);
}

void Args::Text(const std::string& names, std::optional<std::string>* out,
                const std::string& help) {
  Value(
      names, "TEXT",
      [out](const std::string& value) {
        *out = value;
        return Status();
      },
      help);
}

void Args::Texts(const std::string& names, std::vector<std::string>* out, const std::string& help) {
  Values(
      names, "TEXT",
      [out](const std::string& value) {
        out->push_back(value);
        return Status();
      },
      help);
}

void Args::Number(const std::string& names, std::optional<double>* out, double low, double high,
                  const std::string& help) {
  Value(
      names, "X",
      [=](const std::string& text) -> Status {
        SLUICE_ASSIGN(*out, ParseNumber(text, low, high));
        return Status();
      },
      help);
}

void Args::Choice(const std::string& names, const std::string& choices,
                  std::function<void(int)> out, const std::string& help) {
  Value(
      names, choices,
      [choices, out = std::move(out)](const std::string& text) -> Status {
        int index = 0;
        for (size_t at = 0; at <= choices.size(); ++index) {
          const size_t end = std::min(choices.find('|', at), choices.size());
          if (choices.compare(at, end - at, text) == 0) {
            out(index);
            return Status();
          }
          at = end + 1;
        }
        return Usage(fmt::format("{} is not one of the choices", Shown(text)), "want " + choices);
      },
      help);
}

Status Args::Unexpected(const std::string& argument) const {
  if (argument.size() < 2 || argument[0] != '-') {
    return Usage(fmt::format("unexpected argument {}", Shown(argument)),
                 fmt::format("see sluice {} --help", verb_));
  }
  const std::string name = argument.substr(0, argument.find('='));
  const std::string nearest = Nearest(name, impl_->long_names);
  return Usage(fmt::format("unknown option {}", Shown(name)),
               nearest.empty() ? fmt::format("see sluice {} --help", verb_)
                               : fmt::format("did you mean {}?", nearest));
}

Status Args::Parse(const std::vector<std::string>& args) {
  try {
    impl_->app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    help_requested_ = true;
    return Status();
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    return Usage(fmt::format("option {} needs a value", text.substr(0, text.find(':'))),
                 fmt::format("see sluice {} --help", verb_));
  } catch (const CLI::Error& error) {
    return Usage(error.what(), fmt::format("see sluice {} --help", verb_));
  }
  const std::vector<std::string> extras = impl_->app.remaining();
  if (!extras.empty()) return Unexpected(extras.front());
  SLUICE_TRY(impl_->error);
  for (const Impl::Required& required : impl_->required) {
    if (!required.value->empty()) continue;
    return Usage(fmt::format("{} is missing", required.name),
                 fmt::format("see sluice {} --help", verb_));
  }
  return Status();
}

std::string Args::Help() const { return impl_->app.help(); }

}  // namespace sluice::cli
