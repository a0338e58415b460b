// Look-ahead: the next layers' own routers applied to this layer's input name most of the next
// experts for free; what they name and memory lacks is read while the disk has nothing more urgent
// to do.
#include <algorithm>

#include "runtime/expert_store.h"

namespace sluice {
namespace {

uint64_t NextRandom(uint64_t* state) {  // splitmix64, public domain constants by Sebastiano Vigna
  uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

void ExpertStore::LookAhead(uint32_t layer, const float* x) {
  if (c_.lookahead <= 0 || c_.plan->experts.slots == 0) return;
  protect_.clear();
  auto at = std::upper_bound(moe_layers_.begin(), moe_layers_.end(), layer);
  for (int depth = 0; depth < c_.lookahead && at != moe_layers_.end(); ++depth, ++at) {
    std::vector<uint32_t>& guess = guess_[*at];
    if (guess.empty()) {
      router_->Ask(*at, x, &guess);
      if (c_.lookahead_noise > 0) AddNoise(&guess);
    }
    for (uint32_t expert : guess) protect_.push_back(cache_->Key(*at, expert));
  }
  cache_->Protect(protect_);
  at = std::upper_bound(moe_layers_.begin(), moe_layers_.end(), layer);
  for (int depth = 0; depth < c_.lookahead && at != moe_layers_.end(); ++depth, ++at)
    IssueAhead(*at);
}

// A planted file makes guesses nearly perfect; real models are right 81 to 89 times in a hundred.
void ExpertStore::AddNoise(std::vector<uint32_t>* guess) {
  for (uint32_t& expert : *guess) {
    const double u = static_cast<double>(NextRandom(&noise_state_) >> 11) * 0x1.0p-53;
    if (u < c_.lookahead_noise)
      expert = static_cast<uint32_t>(NextRandom(&noise_state_) % config_->moe.experts);
  }
}

void ExpertStore::IssueAhead(uint32_t layer) {
  for (uint32_t expert : guess_[layer]) {
    const uint32_t key = cache_->Key(layer, expert);
    if (cache_->Find(key) >= 0) continue;
    // Demand keeps a margin of flights for itself.
    if (reader_->active() + config_->moe.used >= ExpertReader::kFlightsMax) return;
    const int slot = cache_->Reserve(key);
    if (slot < 0) return;
    Flight* flight = reader_->Start(layer, expert, SlotData(slot), ReadPriority::kAhead);
    if (flight == nullptr) {
      cache_->Abandon(slot);
      return;
    }
    flight_of_slot_[static_cast<size_t>(slot)] = flight;
    ahead_slots_.push_back(slot);
    issued_[layer].push_back(expert);
  }
}

// What look-ahead said about this layer, now that the router has spoken.
void ExpertStore::ScoreGuess(uint32_t layer) {
  const auto asked = [&](uint32_t expert) {
    const auto& needs = rows_->needs();
    const auto at =
        std::lower_bound(needs.begin(), needs.end(), expert,
                         [](const ExpertRows::Need& n, uint32_t e) { return n.expert < e; });
    return at != needs.end() && at->expert == expert;
  };
  for (uint32_t expert : guess_[layer]) {
    ++counters_.guesses;
    if (asked(expert)) ++counters_.guessed_right;
  }
  for (uint32_t expert : issued_[layer]) {
    (asked(expert) ? counters_.ahead_useful_bytes : counters_.ahead_wasted_bytes) +=
        reader_->ExpertBytes(layer);
  }
  guess_[layer].clear();
  issued_[layer].clear();
}

// Look-ahead flights that have arrived become ordinary residents; a failed one is forgotten, since
// nobody asked for it: should the expert be wanted, the demand read reports the error.
void ExpertStore::SettleAhead() {
  queue_->Poll();
  std::erase_if(ahead_slots_, [&](int slot) {
    Flight*& flight = flight_of_slot_[static_cast<size_t>(slot)];
    if (!reader_->Complete(*flight)) return false;
    Show(*flight);
    if (reader_->Finish(flight).ok()) {
      cache_->MarkReady(slot);
      cache_->Unpin(slot);
    } else {
      cache_->Abandon(slot);
    }
    flight = nullptr;
    return true;
  });
}

// Flights for this layer: wanted ones now belong to it; the others are taken back where the kernel
// has not begun.
void ExpertStore::DropStaleFlights(uint32_t layer) {
  std::erase_if(ahead_slots_, [&](int slot) {
    Flight*& flight = flight_of_slot_[static_cast<size_t>(slot)];
    if (flight->layer != layer) return false;
    if (cache_->pins(slot) > 1) return true;  // Resolve found and pinned it
    if (!reader_->Cancel(flight)) return false;
    flight = nullptr;
    cache_->Abandon(slot);
    return true;
  });
}

}  // namespace sluice
