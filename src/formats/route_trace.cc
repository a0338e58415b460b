#include "formats/route_trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/limits.h"

namespace sluice {
namespace {

// Layers times experts: replays keep a record of each. DeepSeek-V3 has 15,616.
constexpr uint64_t kPairsMax = uint64_t{1} << 22;
constexpr size_t kColumns = 9;

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

class Parser {
 public:
  Parser(ByteSpan bytes, const std::string& path)
      : rest_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path_(path) {}

  Result<RouteTrace> Run() {
    std::string_view line;
    while (NextLine(&line)) {
      if (line.empty()) continue;
      if (line[0] == '#') {
        SLUICE_TRY(Comment(line));
      } else if (line.starts_with("turn,")) {
        continue;
      } else {
        SLUICE_TRY(Row(line));
      }
    }
    return Finish();
  }

 private:
  bool NextLine(std::string_view* line) {
    if (rest_.empty()) return false;
    const size_t end = rest_.find('\n');
    *line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
    ++number_;
    return true;
  }

  Status Bad(std::string what) const {
    return Status(Code::kBadModel, std::move(what), fmt::format("{}, line {}", path_, number_),
                  "a route_trace v1 CSV is expected");
  }

  // "# name=value name=value ..."
  Status Comment(std::string_view line) {
    line.remove_prefix(1);
    uint32_t layer = UINT32_MAX;
    while (!line.empty()) {
      const size_t start = line.find_first_not_of(' ');
      if (start == std::string_view::npos) break;
      line.remove_prefix(start);
      const std::string_view word = line.substr(0, line.find(' '));
      line.remove_prefix(word.size());
      const size_t equals = word.find('=');
      if (equals == std::string_view::npos) continue;
      SLUICE_TRY(Setting(word.substr(0, equals), word.substr(equals + 1), &layer));
    }
    return Status();
  }

  Status Setting(std::string_view name, std::string_view value, uint32_t* layer) {
    bool good = true;
    if (name == "model") {
      trace_.model = value.substr(0, limits::kNameBytesMax);
    } else if (name == "arch") {
      trace_.arch = value.substr(0, limits::kNameBytesMax);
    } else if (name == "n_layer") {
      good = ParseNumber(value, &trace_.layers) && trace_.layers <= limits::kLayersMax;
    } else if (name == "n_expert") {
      good = ParseNumber(value, &trace_.experts) && trace_.experts <= limits::kExpertsMax;
    } else if (name == "n_expert_used") {
      good = ParseNumber(value, &trace_.experts_used) &&
             trace_.experts_used <= limits::kExpertsUsedMax;
    } else if (name == "layer") {
      good = ParseNumber(value, layer) && *layer < limits::kLayersMax;
    } else if (name == "expert_bytes" && *layer < limits::kLayersMax) {
      uint64_t expert_bytes = 0;
      good = ParseNumber(value, &expert_bytes);
      if (trace_.expert_bytes.size() <= *layer) trace_.expert_bytes.resize(*layer + 1, 0);
      trace_.expert_bytes[*layer] = expert_bytes;
    }
    return good ? Status() : Bad(fmt::format("'{}' has no sensible value", name));
  }

  Status Row(std::string_view line) {
    std::string_view fields[kColumns];
    size_t count = 0;
    while (count < kColumns) {
      const size_t comma = line.find(',');
      fields[count++] = line.substr(0, comma);
      if (comma == std::string_view::npos) {
        line = {};
        break;
      }
      line.remove_prefix(comma + 1);
    }
    if (count != kColumns || !line.empty())
      return Bad(fmt::format("a row has {} columns, not 9", count));
    RouteRow row;
    uint32_t phase = 0;
    const bool numbers = ParseNumber(fields[0], &row.turn) && ParseNumber(fields[1], &phase) &&
                         ParseNumber(fields[2], &row.step) && ParseNumber(fields[3], &row.layer) &&
                         ParseNumber(fields[4], &row.rank) && ParseNumber(fields[5], &row.expert) &&
                         ParseNumber(fields[6], &row.weight);
    if (!numbers || !std::isfinite(row.weight)) return Bad("a column is not a number");
    if (row.layer >= limits::kLayersMax || row.expert >= limits::kExpertsMax || phase > 1) {
      return Bad(fmt::format("layer {}, expert {} or phase {} is out of range", row.layer,
                             row.expert, phase));
    }
    row.decode = phase == 1;
    if (trace_.rows.empty() || row.layer > top_layer_)
      top_layer_ = row.layer, top_layer_line_ = number_;
    if (trace_.rows.empty() || row.expert > top_expert_)
      top_expert_ = row.expert, top_expert_line_ = number_;
    trace_.rows.push_back(row);
    return Status();
  }

  Result<RouteTrace> Finish() {
    if (trace_.rows.empty()) return Bad("no routing rows");
    if (trace_.layers == 0) trace_.layers = top_layer_ + 1;
    if (trace_.experts == 0) trace_.experts = top_expert_ + 1;
    if (top_layer_ >= trace_.layers) {
      number_ = top_layer_line_;
      return Bad(fmt::format("layer {} of a model with {} layers", top_layer_, trace_.layers));
    }
    if (top_expert_ >= trace_.experts) {
      number_ = top_expert_line_;
      return Bad(fmt::format("expert {} of a model with {} experts", top_expert_, trace_.experts));
    }
    if (uint64_t{trace_.layers} * trace_.experts > kPairsMax) {
      return Bad(
          fmt::format("{} layers times {} experts are too many", trace_.layers, trace_.experts));
    }
    trace_.expert_bytes.resize(trace_.layers, 0);
    return std::move(trace_);
  }

  std::string_view rest_;
  const std::string& path_;
  uint64_t number_ = 0;
  RouteTrace trace_;
  uint32_t top_layer_ = 0, top_expert_ = 0;
  uint64_t top_layer_line_ = 0, top_expert_line_ = 0;
};

}  // namespace

Result<RouteTrace> ParseRouteTrace(ByteSpan bytes, const std::string& path) {
  return Parser(bytes, path).Run();
}

}  // namespace sluice
