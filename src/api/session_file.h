// Session files: a conversation as bytes, and bytes as a conversation.
//
// Contract: ParseSession reads bytes that may be anything: it never reads beyond the span,
// allocates no more than a small multiple of it, and checks the checksum before anything inside is
// believed. Errors are kIo on one line naming `name`; what was parsed is within the ranges that its
// users check (token ids in the vocabulary it states, valid sampling options). SerializeSession of
// it gives the same bytes again.
#pragma once

#include <string>
#include <vector>

#include "api/chat_core.h"
#include "base/bytes.h"
#include "base/status.h"
#include "sluice/tokenizer.h"

namespace sluice {

// Which model a conversation belongs to. name and architecture are for people, the rest decides.
struct ModelIdentity {
  std::string name, architecture;
  std::string model;  // hash of headers and samples of the weights, hex
  uint32_t vocab = 0;
  std::string vocabulary;  // hash of every token's text, hex
};

struct SessionFile {
  ModelIdentity identity;
  ChatState chat;
  RenderOptions render;
  GenerateOptions generate;  // without on_text and cancel
};

std::vector<uint8_t> SerializeSession(const SessionFile& session);
// Writes the header that belongs to bytes[48..]: at least a header long.
void SealSession(MutableByteSpan bytes);
Result<SessionFile> ParseSession(ByteSpan bytes, const std::string& name);

// kUsage naming both models when they differ.
Status CheckIdentity(const ModelIdentity& file, const ModelIdentity& here, const std::string& name);

}  // namespace sluice
