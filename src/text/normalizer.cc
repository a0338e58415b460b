#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode.h"

namespace sluice::text {
namespace {

int Options(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
}

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// utf8proc_decompose moves each mark back step by step, quadratic in a run of marks; so characters
// are decomposed one at a time here and every run of marks is sorted at once.
void SortMarks(std::vector<utf8proc_int32_t>* chars) {
  for (size_t i = 0; i < chars->size();) {
    if (CombiningClass((*chars)[i]) == 0) {
      ++i;
      continue;
    }
    size_t j = i;
    while (j < chars->size() && CombiningClass((*chars)[j]) != 0) ++j;
    std::stable_sort(chars->begin() + static_cast<ptrdiff_t>(i),
                     chars->begin() + static_cast<ptrdiff_t>(j),
                     [](utf8proc_int32_t a, utf8proc_int32_t b) {
                       return CombiningClass(a) < CombiningClass(b);
                     });
    i = j;
  }
}

// `text` is valid UTF-8.
void AppendNormal(std::string_view text, int options, std::string* out) {
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(text.size());
  const char* end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const DecodedChar c = DecodeUtf8(p, end);
    p += c.bytes;
    utf8proc_int32_t parts[32];  // the longest decomposition has 18 characters
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts, 32,
                                           static_cast<utf8proc_option_t>(options), &boundary);
    if (n > 0 && n <= 32) {
      chars.insert(chars.end(), parts, parts + n);
    } else {
      chars.push_back(static_cast<utf8proc_int32_t>(c.value));
    }
  }
  SortMarks(&chars);
  const auto n = utf8proc_normalize_utf32(chars.data(), static_cast<utf8proc_ssize_t>(chars.size()),
                                          static_cast<utf8proc_option_t>(options));
  const size_t count = n < 0 ? chars.size() : static_cast<size_t>(n);
  for (size_t i = 0; i < count; ++i) AppendUtf8(static_cast<uint32_t>(chars[i]), out);
}

bool IsAscii(char c) { return static_cast<uint8_t>(c) < 0x80; }

// Where a run that may change ends: before the next ASCII character whose follower is ASCII too (an
// ASCII character never joins what is before it, and nothing joins it from behind), or at broken
// UTF-8.
size_t RunEnd(std::string_view text, size_t at) {
  const char* end = text.data() + text.size();
  while (at < text.size()) {
    if (IsAscii(text[at])) {
      if (at + 1 == text.size() || IsAscii(text[at + 1])) return at;
      ++at;
      continue;
    }
    const DecodedChar c = DecodeUtf8(text.data() + at, end);
    if (!c.valid) return at;
    at += c.bytes;
  }
  return at;
}

}  // namespace

std::string Normalize(std::string_view text, NormalForm form) {
  const int options = Options(form);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  const char* end = text.data() + text.size();
  for (size_t i = 0; i < text.size();) {
    const bool plain = IsAscii(text[i]) && (i + 1 == text.size() || IsAscii(text[i + 1]));
    if (plain) {
      out.push_back(text[i++]);
      continue;
    }
    const size_t run_end = RunEnd(text, i);
    if (run_end > i) {
      AppendNormal(text.substr(i, run_end - i), options, &out);
      i = run_end;
      continue;
    }
    const uint32_t broken = DecodeUtf8(text.data() + i, end).bytes;
    out.append(text.substr(i, broken));
    i += broken;
  }
  return out;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  while (!from.empty()) {
    const size_t hit = text.find(from, at);
    if (hit == std::string_view::npos) break;
    out.append(text.substr(at, hit - at)).append(to);
    at = hit + from.size();
  }
  out.append(text.substr(at));
  return out;
}

std::string_view Normalizer::Apply(std::string_view text, std::string* buffer) const {
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kForm: {
        // Every character below U+0300 (lead bytes below 0xCC) is its own NFC.
        const bool change = std::any_of(text.begin(), text.end(), [&](char c) {
          return static_cast<uint8_t>(c) >= (step.form == NormalForm::kNfc ? 0xCC : 0x80);
        });
        if (change) *buffer = Normalize(text, step.form), text = *buffer;
        break;
      }
      case Kind::kReplace:
        if (text.find(step.from) != std::string_view::npos) {
          *buffer = ReplaceAll(text, step.from, step.to);
          text = *buffer;
        }
        break;
      case Kind::kPrepend:
        if (!text.empty()) *buffer = step.to + std::string(text), text = *buffer;
        break;
    }
  }
  return text;
}

}  // namespace sluice::text
