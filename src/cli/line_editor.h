// Reading lines from a person: libedit with history, multi-line input, Ctrl-C and Ctrl-D.
//
// Contract: owns libedit's state; standard input and output must be terminals. A message may span
// lines: a line that ends in a backslash goes on in the next, and a line of three quotes opens a
// block that the next such line closes. One at a time, one thread.
#pragma once

#include <memory>
#include <string>

namespace sluice::cli {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();

  enum class Outcome { kMessage, kInterrupted, kEnd };
  // kInterrupted: Ctrl-C, the input so far is forgotten. kEnd: Ctrl-D or a lost terminal.
  Outcome Read(std::string* message);

 private:
  struct Impl;
  Outcome ReadLine(const char* prompt, std::string* line);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cli
