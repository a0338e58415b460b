#include "pack/forge_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace sluice {
namespace {

// Names that chat tools look for; ends of generation are the first and the third.
constexpr std::string_view kSpecial[] = {
    "<|endoftext|>",  "<|im_start|>",   "<|im_end|>",     "<|fim_prefix|>",
    "<|fim_middle|>", "<|fim_suffix|>", "<|vision_pad|>", "<|image_pad|>",
};

constexpr std::string_view kChatTemplate =
    R"({%- for turn in messages -%}
{{- '<|im_start|>' + turn['role'] + '\n' + turn['content'] + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%})";

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else {  // below U+0800
    *out += static_cast<char>(0xC0 | code >> 6);
    *out += static_cast<char>(0x80 | (code & 63));
  }
}

bool SpellsItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

// Byte-level BPE spells every byte as a printable character: most of Latin-1 as itself, the others
// as U+0100 and up. Tokens 0 to 255 are the bytes in the order of these characters.
struct ByteTable {
  std::array<std::string, 256> spelling;  // by byte
  std::vector<std::string> tokens;
  ByteTable() {
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      AppendUtf8(SpellsItself(byte) ? byte : next++, &spelling[byte]);
      if (SpellsItself(byte)) tokens.push_back(spelling[byte]);
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if (!SpellsItself(byte)) tokens.push_back(spelling[byte]);
    }
  }
};

class MergeMaker {
 public:
  MergeMaker(uint32_t text_tokens, ForgeVocabulary* out) : limit_(text_tokens), out_(*out) {}

  void Make() {
    // Two bytes that begin a character of two, three or four bytes.
    const std::vector<std::string> letters = Spell(" etaoinshrdlucmfwypvbgkjqxz");
    const std::vector<std::string> capitals = Spell("TSAIHWCBPMFDLRENOGJUKVYQZX");
    const std::vector<std::string> lower(letters.begin() + 1, letters.end());
    std::vector<std::string> pairs = Join(letters, lower);
    for (std::string& pair : Join(capitals, lower)) pairs.push_back(std::move(pair));
    Join({letters[0]}, capitals);
    Join(Range(0xC2, 0xF4), Range(0x80, 0xBF));
    Join(Range('!', '/'), Range('!', '/'));
    // Three and four letters, frequent ones first, until the vocabulary is full.
    const std::vector<std::string> triples = Join(pairs, lower);
    Join(triples, lower);
    // Not reached by any real size: 1.8 million tokens of letters come before.
  }

 private:
  std::vector<std::string> Spell(std::string_view bytes) const {
    std::vector<std::string> out;
    for (char c : bytes) out.push_back(bytes_.spelling[static_cast<uint8_t>(c)]);
    return out;
  }
  std::vector<std::string> Range(uint32_t first, uint32_t last) const {
    std::vector<std::string> out;
    for (uint32_t byte = first; byte <= last; ++byte) out.push_back(bytes_.spelling[byte]);
    return out;
  }
  // A merge and a token for every left with every right; left runs slower. Stops when full.
  std::vector<std::string> Join(const std::vector<std::string>& left,
                                const std::vector<std::string>& right) {
    std::vector<std::string> made;
    for (const std::string& l : left) {
      for (const std::string& r : right) {
        if (out_.tokens.size() >= limit_) return made;
        made.push_back(l + r);
        out_.tokens.push_back(made.back());
        out_.merges.push_back(l + " " + r);
      }
    }
    return made;
  }

  const ByteTable bytes_;
  const uint32_t limit_;
  ForgeVocabulary& out_;
};

}  // namespace

ForgeVocabulary MakeForgeVocabulary(uint32_t text_tokens, uint32_t vocab) {
  ForgeVocabulary out;
  out.tokens.reserve(vocab);
  out.merges.reserve(text_tokens);
  for (const std::string& token : ByteTable().tokens) out.tokens.push_back(token);
  MergeMaker(text_tokens, &out).Make();
  out.types.assign(out.tokens.size(), 1);
  out.end_of_text = static_cast<uint32_t>(out.tokens.size());
  out.end_of_turn = out.end_of_text + 2;
  for (std::string_view special : kSpecial) {
    out.tokens.emplace_back(special);
    out.types.push_back(3);
  }
  while (out.tokens.size() < vocab) {
    out.tokens.push_back(fmt::format("[unused{}]", out.tokens.size()));
    out.types.push_back(5);
  }
  return out;
}

void PutForgeTokenizer(const ForgeVocabulary& v, GgufHeaderWriter* header) {
  header->String("tokenizer.ggml.model", "gpt2");
  header->String("tokenizer.ggml.pre", "qwen2");
  header->Strings("tokenizer.ggml.tokens", v.tokens);
  header->I32s("tokenizer.ggml.token_type", v.types);
  header->Strings("tokenizer.ggml.merges", v.merges);
  header->U32("tokenizer.ggml.bos_token_id", v.end_of_text);
  header->U32("tokenizer.ggml.eos_token_id", v.end_of_turn);
  header->U32("tokenizer.ggml.padding_token_id", v.end_of_text);
  header->Bool("tokenizer.ggml.add_bos_token", false);
  header->String("tokenizer.chat_template", kChatTemplate);
}

}  // namespace sluice
