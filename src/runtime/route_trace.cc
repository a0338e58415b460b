#include "runtime/route_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

namespace sluice {

Result<std::unique_ptr<RouteRecorder>> RouteRecorder::Open(const std::string& path, uint32_t layers,
                                                           uint32_t used, uint64_t expert_bytes) {
  std::unique_ptr<RouteRecorder> trace(new RouteRecorder());
  trace->path_ = path;
  trace->layers_ = layers;
  trace->used_ = used;
  trace->expert_bytes_ = expert_bytes;
  trace->expert_.resize(layers);
  trace->weight_.resize(layers);
  trace->file_ = std::fopen((path + ".tmp").c_str(), "w");
  if (trace->file_ == nullptr)
    return Status(Code::kIo, fmt::format("cannot write the route trace: {}", std::strerror(errno)),
                  path);
  std::fputs("turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n", trace->file_);
  return trace;
}

RouteRecorder::~RouteRecorder() { (void)Close(); }

void RouteRecorder::Record(uint32_t layer, uint32_t rows, const MoeRows& moe) {
  rows_ = rows;
  expert_[layer].assign(moe.expert, moe.expert + uint64_t{rows} * used_);
  weight_[layer].assign(moe.weight, moe.weight + uint64_t{rows} * used_);
}

void RouteRecorder::WriteRow(int phase, uint32_t row, uint32_t layer) {
  const uint16_t* expert = expert_[layer].data() + uint64_t{row} * used_;
  const float* weight = weight_[layer].data() + uint64_t{row} * used_;
  std::vector<uint32_t> order(used_);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return weight[a] > weight[b]; });
  for (uint32_t slot = 0; slot < used_; ++slot) {
    const std::string line =
        fmt::format("{},{},{},{},{},{},{:.6f},0,{}\n", turn_, phase, step_, layer, slot,
                    expert[order[slot]], weight[order[slot]], expert_bytes_);
    failed_ |= std::fwrite(line.data(), 1, line.size(), file_) != line.size();
  }
}

void RouteRecorder::Flush(int phase) {
  for (uint32_t row = 0; row < rows_; ++row, ++step_) {
    for (uint32_t layer = 0; layer < layers_; ++layer) {
      if (!expert_[layer].empty()) WriteRow(phase, row, layer);
    }
  }
  rows_ = 0;
}

Status RouteRecorder::Close() {
  if (file_ == nullptr) return {};
  failed_ |= std::fclose(file_) != 0;
  file_ = nullptr;
  const std::string partial = path_ + ".tmp";
  if (failed_ || std::rename(partial.c_str(), path_.c_str()) != 0) {
    std::remove(partial.c_str());
    return Status(Code::kIo, "the route trace could not be written", path_, "is the disk full?");
  }
  return {};
}

}  // namespace sluice
