#include "runtime/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/log.h"

namespace sluice {
namespace {

struct TrackName {
  const char* name;
  int row;
};

TrackName NameOf(Timeline::Track track) {
  switch (track) {
    case Timeline::Track::kCompute:
      return {"compute", 0};
    case Timeline::Track::kStall:
      return {"stall", 1};
    case Timeline::Track::kDemandRead:
      return {"read", 10};
    case Timeline::Track::kAheadRead:
      return {"read ahead", 30};
  }
  return {"", 0};
}

// The first row of a track whose last event has ended: overlapping reads must not share one.
int RowFor(std::vector<uint64_t>* busy_until, uint64_t begin, uint64_t end) {
  for (size_t i = 0; i < busy_until->size(); ++i) {
    if ((*busy_until)[i] > begin) continue;
    (*busy_until)[i] = end;
    return static_cast<int>(i);
  }
  busy_until->push_back(end);
  return static_cast<int>(busy_until->size()) - 1;
}

}  // namespace

void Timeline::Add(Track track, int index, int detail, uint64_t begin_ns, uint64_t end_ns) {
  if (events_.size() >= kEventsMax) {
    LogOnce(LogLevel::kNotice, "timeline", "the timeline is full; later events are left out");
    return;
  }
  events_.push_back({begin_ns, std::max(begin_ns, end_ns), index, detail, track});
}

Status Timeline::Write() const {
  const std::string partial = path_ + ".tmp";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(partial.c_str(), "w"),
                                                             std::fclose);
  if (file == nullptr) {
    return Status(Code::kIo, fmt::format("cannot write the timeline: {}", std::strerror(errno)),
                  path_);
  }
  std::vector<Event> sorted = events_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Event& a, const Event& b) { return a.begin_ns < b.begin_ns; });
  const uint64_t zero = sorted.empty() ? 0 : sorted.front().begin_ns;
  std::vector<uint64_t> demand, ahead;
  bool good = std::fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file.get()) >= 0;
  for (size_t i = 0; i < sorted.size() && good; ++i) {
    const Event& e = sorted[i];
    TrackName track = NameOf(e.track);
    if (e.track == Track::kDemandRead) track.row += RowFor(&demand, e.begin_ns, e.end_ns);
    if (e.track == Track::kAheadRead) track.row += RowFor(&ahead, e.begin_ns, e.end_ns);
    std::string name = e.index < 0 ? std::string("head") : fmt::format("layer {}", e.index);
    if (e.detail >= 0) name += fmt::format(" expert {}", e.detail);
    good = std::fputs(fmt::format("{}{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":1,"
                                  "\"tid\":{},\"ts\":{:.3f},"
                                  "\"dur\":{:.3f}}}",
                                  i == 0 ? "" : ",\n", name, track.name, track.row,
                                  static_cast<double>(e.begin_ns - zero) * 1e-3,
                                  static_cast<double>(e.end_ns - e.begin_ns) * 1e-3)
                          .c_str(),
                      file.get()) >= 0;
  }
  good = good && std::fputs("\n]}\n", file.get()) >= 0 && std::fflush(file.get()) == 0;
  if (!good || std::rename(partial.c_str(), path_.c_str()) != 0) {
    std::remove(partial.c_str());
    return Status(Code::kIo, "the timeline could not be written", path_, "is the disk full?");
  }
  return {};
}

}  // namespace sluice
