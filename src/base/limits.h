// Every hard limit of the engine, in one place (STYLE rule 8).
//
// Contract: constants only; each says why this value. Bytes from disk are checked against these
// before any allocation is sized by them.
#pragma once

#include <cstdint>

namespace sluice::limits {

constexpr uint64_t kMetadataBytesMax =
    uint64_t{512} << 20;  // GGUF header or safetensors JSON; real ones stay < 40 MiB
constexpr uint64_t kTensorCountMax = 1 << 20;  // HF MoE folders hold ~40 k tensors
constexpr uint64_t kMetadataKeysMax = 1 << 16;
constexpr uint64_t kNameBytesMax = 1 << 16;  // key and tensor names
constexpr uint32_t kShardsMax = 4096;
constexpr uint32_t kVocabMax = 1 << 22;
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kHeadsMax = 4096;
constexpr uint32_t kHeadDimMax = 4096;
constexpr uint32_t kHiddenMax = 1 << 20;
constexpr uint32_t kExpertsMax = 1 << 16;
constexpr uint32_t kExpertsUsedMax = 256;  // top-k
constexpr uint32_t kContextMax = 1 << 24;
constexpr uint32_t kThreadsMax = 256;
constexpr uint32_t kReadsInFlightMax = 256;  // slots of a ReadQueue
constexpr uint32_t kReadAheadMax = 2;  // streamed blocks beyond the one computed (DESIGN section 3)
constexpr uint32_t kJsonDepthMax = 256;
constexpr uint32_t kPrefixEntriesMax = 32768;  // 2 M tokens of pages; an index of 3 MB

}  // namespace sluice::limits

namespace sluice {

constexpr uint32_t kKvPageTokens = 64;  // positions of one KV page

}  // namespace sluice
