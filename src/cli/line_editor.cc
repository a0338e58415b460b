#include "cli/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cwchar>

#include "cli/interrupt.h"

namespace sluice::cli {
namespace {

constexpr int kHistoryMax = 500;
constexpr const char* kFirstPrompt = "> ";
constexpr const char* kNextPrompt = ". ";

// libedit's own reader tries again after a signal; this one gives up when the signal was Ctrl-C.
// Returns 1, or 0 at the end, or -1, as libedit wants it.
int ReadChar(EditLine*, wchar_t* out) {
  std::mbstate_t state{};
  while (!PromptInterrupted()) {
    char byte = 0;
    const ssize_t n = read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return static_cast<int>(n);
    const size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // the character goes on
    if (used != static_cast<size_t>(-1)) return 1;
    state = {};  // not a character in this locale: drop the byte
  }
  errno = EINTR;
  return -1;
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
  const char* prompt = kFirstPrompt;
};

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {
  HistEvent event;
  impl_->history = history_init();
  history(impl_->history, &event, H_SETSIZE, kHistoryMax);
  history(impl_->history, &event, H_SETUNIQUE, 1);
  impl_->editor = el_init("sluice", stdin, stdout, stderr);
  EditLine* editor = impl_->editor;
  el_set(editor, EL_CLIENTDATA, impl_.get());
  el_set(
      editor, EL_PROMPT, +[](EditLine* e) -> char* {
        void* data = nullptr;
        el_get(e, EL_CLIENTDATA, &data);
        return const_cast<char*>(static_cast<Impl*>(data)->prompt);
      });
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_GETCFN, ReadChar);
  el_set(editor, EL_SIGNAL, 0);  // Ctrl-C is ours (interrupt.h)
  el_set(editor, EL_HIST, history, impl_->history);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
  el_end(impl_->editor);
  history_end(impl_->history);
}

LineEditor::Outcome LineEditor::ReadLine(const char* prompt, std::string* line) {
  impl_->prompt = prompt;
  int length = 0;
  const PromptScope prompting;
  TakePromptInterrupt();
  const char* text = el_gets(impl_->editor, &length);
  if (TakePromptInterrupt()) {
    el_reset(impl_->editor);
    std::fputs("\n", stdout);
    return Outcome::kInterrupted;
  }
  if (!text || length <= 0) return Outcome::kEnd;
  line->assign(text, static_cast<size_t>(length));
  while (line->ends_with('\n') || line->ends_with('\r')) line->pop_back();
  return Outcome::kMessage;
}

LineEditor::Outcome LineEditor::Read(std::string* message) {
  message->clear();
  std::string line;
  bool block = false, more = true;
  for (bool first = true; more; first = false) {
    const Outcome outcome = ReadLine(first ? kFirstPrompt : kNextPrompt, &line);
    if (outcome != Outcome::kMessage) return outcome;
    if (line == "\"\"\"") {
      block = !block;
      more = block;
      continue;
    }
    const bool continued = !block && line.ends_with('\\');
    if (continued) line.pop_back();
    more = block || continued;
    *message += line + (more ? "\n" : "");
  }
  if (message->ends_with('\n')) message->pop_back();
  if (!message->empty()) {
    HistEvent event;
    history(impl_->history, &event, H_ENTER, message->c_str());
  }
  return Outcome::kMessage;
}

}  // namespace sluice::cli
