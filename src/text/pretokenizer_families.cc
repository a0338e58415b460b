// The data behind tokenizer.ggml.pre. Patterns are those the models' own tokenizer.json files carry
// (where llama.cpp had to rewrite one for its regex engine, the original is used); the names are
// the ones its converter writes.
#include <fmt/format.h>

#include "text/pretokenizer.h"
#include "text/unicode.h"

namespace sluice::text {

const char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+)"
                            R"(| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// The parts most patterns are put together from.
#define SLUICE_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define SLUICE_WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define SLUICE_SIGNS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define SLUICE_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
// Words with a case: upper-case letters may only begin one.
#define SLUICE_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define SLUICE_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define SLUICE_CASED(tail)                                       \
  R"([^\r\n\p{L}\p{N}]?)" SLUICE_UPPER "*" SLUICE_LOWER "+" tail \
  "|"                                                            \
  R"([^\r\n\p{L}\p{N}]?)" SLUICE_UPPER "+" SLUICE_LOWER "*" tail
#define SLUICE_SIGNS_SLASH R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)"

constexpr char kLlama3[] =
    SLUICE_CONTRACTION "|" SLUICE_WORD R"(|\p{N}{1,3}|)" SLUICE_SIGNS "|" SLUICE_SPACES;
constexpr char kQwen2[] =
    SLUICE_CONTRACTION "|" SLUICE_WORD R"(|\p{N}|)" SLUICE_SIGNS "|" SLUICE_SPACES;
constexpr char kQwen35[] = SLUICE_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" SLUICE_SPACES;
constexpr char kO200k[] =
    SLUICE_CASED(SLUICE_CONTRACTION "?") R"(|\p{N}{1,3}|)" SLUICE_SIGNS_SLASH "|" SLUICE_SPACES;
constexpr char kYoutu[] =
    SLUICE_CASED(SLUICE_CONTRACTION "?") R"(|\p{N}|)" SLUICE_SIGNS_SLASH "|" SLUICE_SPACES;
constexpr char kTekken[] = SLUICE_CASED("") R"(|\p{N}|)" SLUICE_SIGNS_SLASH "|" SLUICE_SPACES;
constexpr char kDeepseek3[] =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)re"
    R"( ?[\p{P}\p{S}]+[\r\n]*|)" SLUICE_SPACES;
constexpr char kJais2[] = SLUICE_CONTRACTION
    "|" SLUICE_WORD R"(|\p{N}{1,3}|)" SLUICE_SIGNS R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|)"
    R"(\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|)"
    R"(\s{1,2}(?!\S)|\s{1})";
constexpr char kBailing[] =
    "'(?i:[sdmt]|ll|ve|re)|" SLUICE_WORD R"(|\p{N}|)" SLUICE_SIGNS R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kSeedCoder[] =
    SLUICE_CONTRACTION "|" SLUICE_WORD R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" SLUICE_SPACES;
constexpr char kExaoneMoe[] = SLUICE_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kMinicpm5[] =
    SLUICE_CONTRACTION "|" SLUICE_WORD R"(|\p{N}+|)" SLUICE_SIGNS "|" SLUICE_SPACES;
constexpr char kBloom[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr char kDigit[] = R"(\p{N})";
constexpr char kDigits3[] = R"(\p{N}{1,3})";
constexpr char kCjkKana[] = "[一-龥぀-ゟ゠-ヿ]+";
constexpr char kCjkHangul[] = "[一-龥ࠀ-一가-\xED\x9F\xBF]+";
// The cased letters as DeepSeek's first tokenizer lists them.
// (clang-format would break this literal anew each time.)
// clang-format off
constexpr char kCasedLetters[] =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ"
    "-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\xE1\xBD\xBDᾀ-ᾴᾶ-ᾼ\xE1\xBE\xBEῂ-ῄῆ-ῌῐ-"
    "\xE1\xBF\x93ῖ-\xE1\xBF\x9Bῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\xE2\x84\xA6ℨ\xE2\x84\xAA-ℭ"
    "ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟"
    "𞤀-𞥃]+";
// clang-format on
constexpr char kYoutuScripts[] =
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-"
    "ゟ゠-"
    "ヿ]"
    "+";

struct Row {
  std::vector<std::string_view> names;
  std::vector<std::string_view> patterns;
  bool ignore_merges = false, add_bos = false, byte_level = true;
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      {{"", "default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {kLlama3},
       true,
       true},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {kLlama3}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "stablelm2", "hunyuan", "solar-open", "megrez",
        "grok-2"},
       {kQwen2}},
      {{"qwen35"}, {kQwen35}},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kO200k}, true},
      {{"granite-embed-multi-97m"}, {kO200k}, true},
      {{"tekken"}, {kTekken}, true, true},
      {{"gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "granite-docling", "exaone4",
        "gigachat", "a.x-4.0", "mellum", "modern-bert", "jina-es", "jina-de", "jina-v2-es",
        "jina-v2-de"},
       {kGpt2Pattern}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       {kDigit, kGpt2Pattern}},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Pattern, "[0-9][0-9][0-9]"}},
      {{"deepseek-llm"},
       {R"([\r\n])", kCasedLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kCjkHangul,
        R"(\p{N}+)"}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjkHangul, kDigit}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {kDigits3, kCjkKana, kDeepseek3}},
      {{"youtu"}, {kYoutuScripts, kYoutu}, true},
      {{"jais-2"}, {kJais2}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing}},
      {{"seed-coder"}, {kSeedCoder}},
      {{"exaone-moe"}, {kExaoneMoe}},
      {{"minicpm5"}, {kDigits3, kMinicpm5}, true},
      {{"laguna"}, {R"([^\n]+|[\n]+)", kQwen2}},
      {{"poro-chat", "bloom", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, kDigit}},
      {{"chameleon"},
       {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))", kDigit,
        R"([\p{P}!-/:-@\[-`{-~])", kGpt2Pattern},
       false,
       true},
      {{"gemma4", "sarvam-moe"}, {R"([^\n]+|[\n]+)"}, false, false, false},
  };
  return rows;
}

}  // namespace

Result<PreFamily> MakePreFamily(std::string_view name) {
  for (const Row& row : Rows()) {
    for (std::string_view known : row.names) {
      if (known != name) continue;
      PreFamily family;
      family.byte_level = row.byte_level;
      family.ignore_merges = row.ignore_merges;
      family.add_bos = row.add_bos;
      for (std::string_view pattern : row.patterns) SLUICE_TRY(family.pre.AddSplit(pattern));
      return family;
    }
  }
  return Status(Code::kBadModel,
                fmt::format("unknown pre-tokenizer '{}'", ToValidUtf8(name.substr(0, 64))),
                "tokenizer.ggml.pre", "its splitting rule is needed for right token ids");
}

}  // namespace sluice::text
