// A session file: as it is, and its content behind an envelope that is right, so that the content
// is reached, too. What is believed must be written as the same bytes again.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "api/session_file.h"
#include "api/session_format.h"

namespace {

using namespace sluice;

void Parse(ByteSpan bytes) {
  const Result<SessionFile> session = ParseSession(bytes, "fuzz");
  if (!session.ok()) return;
  const std::vector<uint8_t> again = SerializeSession(*session);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) __builtin_trap();
  if (session->chat.answer_at > session->chat.timeline.size()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Parse({data, size});
  constexpr size_t kHeader = sizeof(session_format::Header);
  if (size < kHeader) return 0;
  std::vector<uint8_t> bytes(data, data + size);
  SealSession(bytes);
  Parse(bytes);
  return 0;
}
