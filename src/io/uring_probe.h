// May this process use io_uring?
//
// Contract: thread-safe; asked once per process and remembered. The question is put by a forked
// child, since a seccomp filter (Android's application sandbox) may kill whoever calls
// io_uring_setup instead of returning an error. Call it before large memory is touched: the child
// shares the parent's page tables for a moment.
#pragma once

#include <string>

namespace sluice {

struct UringProbe {
  bool available = false;
  std::string reason;  // why not, for a notice
};
const UringProbe& ProbeUring();

}  // namespace sluice
