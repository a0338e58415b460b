// libFuzzer: a template and a conversation from the same bytes. Nothing may crash, hang or
// disagree: the pieces joined must be the plain rendering. Input: template, a zero byte, messages
// as JSON (else a fixed conversation).
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace {

const char kMessages[] = R"([{"role": "system", "content": "be <|im_end|> kind"},)"
                         R"( {"role": "user", "content": "a\nb", "n": 1.5},)"
                         R"( {"role": "assistant", "content": null, "tool_calls":)"
                         R"( [{"function": {"name": "f", "arguments": "{\"x\": [1]}"}}]}])";

// Text with code points of unassigned planes comes back changed from RenderPieces, by contract.
bool HasUnassigned(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0xF1 || byte == 0xF2 || byte == 0xF3) return true;
  }
  return text.find("\\u") != std::string_view::npos || text.find("\\U") != std::string_view::npos;
}

// A panic of the engine becomes an error for the user's sake; here it is a finding.
void NoPanic(const sluice::Status& status) {
  if (status.ToString().find("internal error in the template engine") != std::string::npos)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const auto tmpl = sluice::ChatTemplate::Compile(std::string(input.substr(0, cut)));
  NoPanic(tmpl.status());
  if (!tmpl.ok()) return 0;
  sluice::RenderRequest request;
  request.messages_json = kMessages;
  if (cut != std::string_view::npos) request.messages_json = input.substr(cut + 1);
  request.extra_json = R"({"enable_thinking": false, "d": {"b": 1, "a": [true, "x"]}})";
  request.special_tokens_json = R"({"bos_token": "<s>"})";
  request.now_unix = 1741521600;
  const auto text = tmpl->Render(request);
  const auto pieces = tmpl->RenderPieces(request);
  NoPanic(text.status());
  NoPanic(pieces.status());
  if (!text.ok() || !pieces.ok() || HasUnassigned(input)) return 0;
  std::string joined;
  for (const auto& piece : *pieces) {
    if (piece.text.empty()) std::abort();
    joined += piece.text;
  }
  if (joined != *text) std::abort();
  return 0;
}
