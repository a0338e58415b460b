// KvSpill: the KV pages that found no frame, in a file without a name, and the window through which
// attention sees them. Sliding parts never come here: they are in memory or lost.
//
// Contract: the engine's step thread only. Attention of layer i needs layer i's part of each page
// and nothing else, so the file is layer-major: part of page p at (base of i) + p * stride, which
// makes the away pages of one layer sequential runs. Between Begin and End the parts of one layer
// (two with two windows) lie in the window; Enter(layer) waits for them, compares their checksums
// and points the timeline's page pointers at them, less the layer's offset in a page, so that the
// forward pass does not know. The next attention layer is read while this one (two windows), or
// what lies between them (one), is computed. Bytes that are not what was written are kIo, never an
// answer. Save, Peek and Read use the window's memory and must not be called between Begin and End.
// No allocation after Make. The file vanishes with the process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "io/read_queue.h"
#include "memory/arena.h"
#include "memory/kv_pages.h"
#include "model/config.h"
#include "model/kv_layout.h"

namespace sluice {

class KvSpill {
 public:
  static constexpr uint64_t kAlignment = 4096;  // of parts in the file and in the window
  // Bytes of a layer's part of a page, aligned; 0 for layers without one.
  static uint64_t Stride(const KvLayout& kv, uint32_t layer);

  struct Context {
    const ModelConfig* config = nullptr;
    const KvLayout* kv = nullptr;
    KvPagePool* pool = nullptr;
    ThreadPool* threads = nullptr;
    Ledger* ledger = nullptr;
    std::string dir;
    uint32_t window_pages = 0, windows = 1;
    uint64_t window_bytes = 0;
    ReadQueueOptions queue;
  };
  static Result<std::unique_ptr<KvSpill>> Make(const Context& context);
  ~KvSpill();

  // Writes pages that have frames (ascending ids) and marks them saved. On kIo (a full disk) none
  // is marked.
  Status Save(std::span<const int32_t> pages);
  // The bytes of a page that is away, until the next call.
  Result<ByteSpan> Peek(int page);
  Status Read(int page, uint8_t* out);

  // Use, for the choice of victims: a new stamp for pages at hand.
  void Touch(std::span<const int32_t> pages);
  // The page with a frame that was touched longest ago, by anyone but the last to Touch; -1: none.
  int Idle() const;
  void Choose(int page) { touched_[static_cast<size_t>(page)] = clock_; }
  // Room for a list of all pages.
  std::vector<int32_t>& victims() { return victims_; }

  // A chunk of rows [first_pos, first_pos + rows) of the timeline with these pages is about to
  // pass through the layers.
  void Begin(std::span<const int32_t> table, uint8_t** pointers, uint32_t first_pos, uint32_t rows);
  Status Enter(uint32_t layer);
  void Leave(uint32_t layer);  // its mixers are done
  void End();

  uint32_t window_pages() const { return c_.window_pages; }
  uint64_t away_bytes() const;
  uint64_t bytes_read() const { return queue_->bytes_read(); }
  uint64_t bytes_written() const { return bytes_written_; }
  uint64_t stall_ns() const { return stall_ns_; }
  // Why it goes through the page cache; empty when it does not.
  const std::string& step_down() const { return step_down_; }
  // The page whose bytes were damaged, since the last call; -1: none.
  int TakeDamaged();

 private:
  struct Part {
    uint64_t in_page = 0, bytes = 0, stride = 0;  // stride 0: no attention in this layer
    uint64_t base = 0;                            // of page 0 in the file
    uint64_t first_sum = 0;                       // of page 0 in sums_
  };
  struct Window {
    uint8_t* memory = nullptr;
    int layer = -1;
    uint32_t next = 0, slots = 0;  // table index to go on from; parts placed so far
    std::vector<ReadRequest> reads;
    std::vector<uint32_t> first_index;  // of the run of each read
    size_t submitted = 0;
  };

  explicit KvSpill(const Context& context) : c_(context) {}
  Status OpenFile();
  Status WriteAt(uint64_t offset, uint64_t bytes);
  Status SaveLayer(const Part& part, std::span<const int32_t> pages);
  uint32_t FirstIndex(uint32_t layer) const;
  bool Away(uint32_t index) const { return !c_.pool->resident(table_[index]); }
  void Submit(Window* window, ReadPriority priority);
  Status Finish(Window* window);
  Status WaitAll(Window* window);
  Status Verify(const Window& window);
  void ReadAhead(uint32_t after);
  Window* Find(int layer);
  Status Wrong(const Status& status, uint32_t layer, int page) const;
  Status Damaged(uint32_t layer, int page);

  Context c_;
  std::string name_, step_down_;
  int fd_ = -1, direct_fd_ = -1;
  std::unique_ptr<File> file_;
  std::unique_ptr<ReadQueue> queue_;
  Arena arena_;
  std::vector<Part> parts_;     // by layer
  std::vector<uint64_t> sums_;  // by layer with attention, by page
  std::vector<uint64_t> touched_;
  std::vector<int32_t> victims_;
  std::vector<ReadRequest> page_reads_;
  std::vector<Window> windows_;
  std::span<const int32_t> table_;
  uint8_t** pointers_ = nullptr;
  uint32_t first_pos_ = 0, end_index_ = 0;
  uint64_t clock_ = 1, bytes_written_ = 0, stall_ns_ = 0;
  int damaged_ = -1;
};

}  // namespace sluice
