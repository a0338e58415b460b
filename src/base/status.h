// Status and Result for the rooms below the public door, plus the two propagation macros.
//
// Contract: the types are those of include/sluice/status.h. The macros evaluate their expression
// once and return its Status from the enclosing function when it is not ok.
#pragma once

#include "sluice/status.h"

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

#define SLUICE_TRY(expr)                                   \
  do {                                                     \
    ::sluice::Status sluice_try_status = (expr);           \
    if (!sluice_try_status.ok()) return sluice_try_status; \
  } while (0)

// SLUICE_ASSIGN(auto x, MakeX());  binds the value or returns the error.
#define SLUICE_ASSIGN(lhs, expr) \
  SLUICE_ASSIGN_IMPL(SLUICE_CONCAT(sluice_result_, __LINE__), lhs, expr)
#define SLUICE_ASSIGN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                       \
  if (!tmp.ok()) return tmp.status();      \
  lhs = std::move(tmp).value()
