// One verb's arguments: declared once with their ranges, parsed strictly, with an error that names
// the option.
//
// Contract: a thin face over CLI11, the only file that includes it. Pointers must outlive Parse. A
// number must be a whole number text ("12x", "", "1e99" are errors); an option given twice keeps
// the last value unless it is repeatable. Every error is kUsage on one line; an unknown option
// names the nearest one. Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sluice/types.h"

namespace sluice::cli {

class Args {
 public:
  Args(std::string verb, std::string summary);
  ~Args();

  using Setter = std::function<Status(const std::string& value)>;

  // Options declared afterwards appear under this title in the help.
  void Group(std::string title) { group_ = std::move(title); }
  void Positional(const std::string& name, std::string* out, bool required,
                  const std::string& help);
  // Whatever words are left; after the other positionals.
  void Positionals(const std::string& name, std::vector<std::string>* out, const std::string& help);
  // names as CLI11 wants them: "-c,--ctx".
  void Flag(const std::string& names, bool* out, const std::string& help);
  void Text(const std::string& names, std::optional<std::string>* out, const std::string& help);
  void Texts(const std::string& names, std::vector<std::string>* out, const std::string& help);
  // kind is shown in the help ("N", "SIZE"); the setter's error is prefixed with the option.
  void Value(const std::string& names, const std::string& kind, Setter setter,
             const std::string& help);
  void Values(const std::string& names, const std::string& kind, Setter setter,
              const std::string& help);
  template <typename T>
  void Int(const std::string& names, T* out, int64_t low, int64_t high, const std::string& help);
  void Number(const std::string& names, std::optional<double>* out, double low, double high,
              const std::string& help);
  // choices: "f32|f16|q8"; *out becomes the index.
  void Choice(const std::string& names, const std::string& choices, std::function<void(int)> out,
              const std::string& help);

  // Everything after the verb. Asks for help set help_requested().
  Status Parse(const std::vector<std::string>& args);
  bool help_requested() const { return help_requested_; }
  std::string Help() const;

 private:
  struct Impl;
  void Add(const std::string& names, const std::string& kind, Setter setter, bool all,
           const std::string& help);
  Status Unexpected(const std::string& argument) const;

  std::unique_ptr<Impl> impl_;
  std::string verb_, group_ = "Options";
  bool help_requested_ = false;
};

// Strict readers; the text of the error says what was wanted, not where.
Result<int64_t> ParseInt(const std::string& text, int64_t low, int64_t high);
Result<uint64_t> ParseUnsigned(const std::string& text);
Result<double> ParseNumber(const std::string& text, double low, double high);
// "1,2,3" (commas, spaces or newlines) -> ids >= 0.
Result<std::vector<TokenId>> ParseIds(std::string_view text);
// "0,2" or "0-3,6".
Result<std::vector<int>> ParseCpus(const std::string& text);

// The candidate nearest to the word, if it is near enough to be a slip of the finger; else "".
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

template <typename T>
void Args::Int(const std::string& names, T* out, int64_t low, int64_t high,
               const std::string& help) {
  Value(
      names, "N",
      [=](const std::string& text) -> Status {
        SLUICE_ASSIGN(const int64_t value, ParseInt(text, low, high));
        *out = static_cast<T>(value);
        return Status();
      },
      help);
}

}  // namespace sluice::cli
