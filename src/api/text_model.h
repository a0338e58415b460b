// TextModel::Impl: the tokenizer and the chat template behind the public face.
//
// Contract: immutable after Open; Render takes a lock because a compiled template is not
// thread-safe. A template that does not compile is no error until somebody renders: completion
// works without it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model_source.h"
#include "sluice/tokenizer.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice {

struct TextModel::Impl {
  std::unique_ptr<Tokenizer> tokens;
  std::string template_source;
  std::string special_json = "{}";
  mutable std::mutex mutex;
  mutable std::optional<ChatTemplate> compiled;

  const Tokenizer& tokenizer() const { return *tokens; }
  Status Compile() const;  // once, under the lock
};

// From an opened source, before its metadata is dropped. The source keeps its catalog.
Result<std::unique_ptr<TextModel>> MakeTextModel(const ModelSource& source);

}  // namespace sluice
