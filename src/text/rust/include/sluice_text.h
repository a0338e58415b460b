// The C ABI of the crate sluice_text: chat templates.
//
// Contract: no global state. A template is an opaque handle made by compile and given back to free;
// it may move between threads but is used by one at a time. All text is UTF-8 with explicit
// lengths. On success (0) the out-parameters are filled and the error is untouched; on failure the
// result is the error's kind, the error is filled and nothing else. Filled buffers belong to the
// caller and go back through sluice_text_buffer_free. Panics of the crate arrive as errors, never
// as unwinding.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_template sluice_template;

typedef struct sluice_text_slice {
  const char* data;
  size_t len;
} sluice_text_slice;

typedef struct sluice_text_buffer {
  uint8_t* data;
  size_t len;
} sluice_text_buffer;

enum {
  SLUICE_TEMPLATE_SYNTAX = 1,  /* the template cannot be compiled */
  SLUICE_TEMPLATE_RAISED = 2,  /* the template called raise_exception: the message is its own */
  SLUICE_TEMPLATE_RUNTIME = 3, /* the template failed or used too much time or memory */
  SLUICE_TEMPLATE_INPUT = 4    /* messages, tools, variables or tool arguments are malformed */
};

typedef struct sluice_text_error {
  uint32_t kind;
  uint32_t line; /* of the template's source, 0 if unknown */
  sluice_text_buffer message;
} sluice_text_error;

typedef struct sluice_template_request {
  sluice_text_slice messages;       /* JSON array */
  sluice_text_slice tools;          /* JSON array or empty */
  sluice_text_slice variables;      /* JSON object or empty */
  sluice_text_slice special_tokens; /* JSON object or empty: strings or {"content": string} */
  int32_t add_generation_prompt;
  int64_t now; /* civil time for strftime_now, seconds since 1970 */
} sluice_template_request;

int32_t sluice_template_compile(sluice_text_slice source, sluice_template** out,
                                sluice_text_error* error);

/* runs may be null. Otherwise it gets uint32_t byte lengths that cut the text into alternating
 * runs: written by the template, taken from the request's strings, written by the template, ...
 * (the first may be 0). */
int32_t sluice_template_render(const sluice_template* tmpl, const sluice_template_request* request,
                               sluice_text_buffer* out, sluice_text_buffer* runs,
                               sluice_text_error* error);

void sluice_template_free(sluice_template* tmpl);
void sluice_text_buffer_free(sluice_text_buffer buffer);

#ifdef __cplusplus
}
#endif
