#include "runtime/snapshots.h"

#include <algorithm>

#include "base/log.h"

namespace sluice {
namespace {

constexpr size_t kPointsMax = 16;  // of one chunk

}  // namespace

void Snapshots::Drop(Point* point, const Status& why) {
  point->writer.reset();
  LogOnce(LogLevel::kNotice, "snapshot", "a snapshot was not kept: " + why.ToString());
}

void Snapshots::Begin(Sequence* sequence, uint32_t first, uint32_t rows, uint32_t prompt_end) {
  points_.clear();
  sequence_ = sequence;
  first_ = first;
  if (!sequence->recurrent() || sequence->store() == nullptr || prompt_end == 0) return;
  const uint32_t end = first + rows;
  std::vector<uint32_t> lengths;
  for (uint32_t n = (first / kEveryTokens + 1) * kEveryTokens; n <= end; n += kEveryTokens)
    lengths.push_back(n);
  for (uint32_t mark : sequence->marks()) {
    if (mark > first && mark <= end) lengths.push_back(mark);
  }
  // The same prompt again needs the logits of its last token, so that one is processed once more.
  if (prompt_end - 1 > first && prompt_end - 1 <= end) lengths.push_back(prompt_end - 1);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  if (lengths.size() > kPointsMax) lengths.erase(lengths.begin(), lengths.end() - kPointsMax);
  for (uint32_t n : lengths) {
    if (sequence->store()->HasCheckpoint(sequence->KeyAt(n))) continue;
    Point point{n, nullptr};
    Result<std::unique_ptr<CheckpointWriter>> writer = sequence->Begin(n);
    if (writer.ok()) {
      point.writer = std::move(writer).value();
      points_.push_back(std::move(point));
    } else {
      Drop(&point, writer.status());
    }
  }
}

uint32_t Snapshots::TileRows(uint32_t row, uint32_t most) const {
  for (const Point& point : points_) {
    const uint32_t at = point.length - first_;
    if (at > row) return std::min(most, at - row);
  }
  return most;
}

void Snapshots::Passed(uint32_t layer, uint32_t row) {
  const StateLayout::Layer& part = layout_->layers[layer];
  if (!part.present) return;
  // A layer's recurrence and the inputs of its convolution lie side by side.
  const uint64_t begin = part.s_offset;
  uint64_t end = layout_->floats;
  for (size_t next = layer + 1; next < layout_->layers.size(); ++next) {
    if (!layout_->layers[next].present) continue;
    end = layout_->layers[next].s_offset;
    break;
  }
  for (Point& point : points_) {
    if (point.length - first_ != row || point.writer == nullptr) continue;
    const auto* bytes = reinterpret_cast<const uint8_t*>(sequence_->view().state + begin);
    const Status status = point.writer->WriteState(begin * 4, {bytes, (end - begin) * 4});
    if (!status.ok()) Drop(&point, status);
  }
}

void Snapshots::Commit() {
  for (Point& point : points_) {
    if (point.writer == nullptr) continue;
    const uint32_t rest = point.length % kKvPageTokens;
    const Result<ByteSpan> page =
        rest == 0 ? ByteSpan() : sequence_->PageBytes(point.length / kKvPageTokens);
    const Status status = page.ok() ? point.writer->Commit(*page) : page.status();
    if (!status.ok()) Drop(&point, status);
  }
  points_.clear();
}

}  // namespace sluice
