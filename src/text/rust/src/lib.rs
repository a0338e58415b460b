//! Chat templates behind a C ABI (include/sluice_text.h has the contract).
//!
//! Path of a template: lexer -> expr/translate (Jinja's grammar into a canonical form) -> engine
//! (minijinja runs it with Python's semantics from value, ops, methods, filters, checks, format,
//! json, repr, clock). color.rs marks the conversation's text so that the caller can tell it from
//! the template's own.

mod checks;
mod clock;
mod color;
mod engine;
mod expr;
mod filters;
mod format;
mod json;
mod lexer;
mod methods;
mod ops;
mod repr;
mod request;
mod translate;
mod value;

use std::panic::{catch_unwind, AssertUnwindSafe};

use engine::{Failure, FailureKind, Template};
use request::Request;

#[repr(C)]
pub struct Slice {
    data: *const u8,
    len: usize,
}

#[repr(C)]
pub struct Buffer {
    data: *mut u8,
    len: usize,
}

#[repr(C)]
pub struct AbiError {
    kind: u32,
    line: u32,
    message: Buffer,
}

#[repr(C)]
pub struct AbiRequest {
    messages: Slice,
    tools: Slice,
    variables: Slice,
    special_tokens: Slice,
    add_generation_prompt: i32,
    now: i64,
}

impl Buffer {
    fn of(bytes: Vec<u8>) -> Buffer {
        let boxed = bytes.into_boxed_slice();
        let len = boxed.len();
        Buffer { data: Box::into_raw(boxed).cast(), len }
    }
}

// The caller's bytes as text.
//
// Safety: data must point at len readable bytes or len must be 0.
unsafe fn text<'a>(slice: &Slice, what: &str) -> Result<&'a str, Failure> {
    if slice.len == 0 {
        return Ok("");
    }
    let bytes = std::slice::from_raw_parts(slice.data, slice.len);
    std::str::from_utf8(bytes).map_err(|_| Failure {
        kind: FailureKind::Input,
        line: 0,
        message: format!("{what}: not valid UTF-8"),
    })
}

// Runs `work`; a panic becomes an error like any other. Returns 0 or the kind of failure.
fn guarded<T>(
    error: *mut AbiError,
    work: impl FnOnce() -> Result<T, Failure>,
    done: impl FnOnce(T),
) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Failure {
            kind: FailureKind::Runtime,
            line: 0,
            message: "internal error in the template engine".into(),
        })
    });
    match outcome {
        Ok(value) => {
            done(value);
            0
        }
        Err(failure) => {
            let kind = failure.kind as u32;
            // Safety: the caller passes a valid error to fill.
            unsafe {
                error.write(AbiError {
                    kind,
                    line: failure.line,
                    message: Buffer::of(failure.message.into_bytes()),
                })
            };
            kind as i32
        }
    }
}

/// # Safety
/// See include/sluice_text.h: valid pointers, `source` readable.
#[no_mangle]
pub unsafe extern "C" fn sluice_template_compile(
    source: Slice,
    out: *mut *mut Template,
    error: *mut AbiError,
) -> i32 {
    guarded(
        error,
        || Template::compile(text(&source, "template")?),
        |template| out.write(Box::into_raw(Box::new(template))),
    )
}

/// # Safety
/// See include/sluice_text.h: `template` from compile, not in use elsewhere; `runs` may be null.
#[no_mangle]
pub unsafe extern "C" fn sluice_template_render(
    template: *const Template,
    request: *const AbiRequest,
    out: *mut Buffer,
    runs: *mut Buffer,
    error: *mut AbiError,
) -> i32 {
    let work = || {
        let abi = &*request;
        let parts = [
            text(&abi.messages, "messages")?,
            text(&abi.tools, "tools")?,
            text(&abi.variables, "template variables")?,
            text(&abi.special_tokens, "special tokens")?,
        ];
        let mut request = Request::parse(parts[0], parts[1], parts[2], parts[3])
            .map_err(|message| Failure { kind: FailureKind::Input, line: 0, message })?;
        request.add_generation_prompt = abi.add_generation_prompt != 0;
        request.now = abi.now;
        request.mark = !runs.is_null();
        let rendered = (*template).render(&request)?;
        Ok(if request.mark { color::unpaint(&rendered) } else { (rendered, Vec::new()) })
    };
    guarded(error, work, |(text, lengths)| {
        out.write(Buffer::of(text.into_bytes()));
        if !runs.is_null() {
            runs.write(Buffer::of(lengths.iter().flat_map(|n| n.to_ne_bytes()).collect()));
        }
    })
}

/// # Safety
/// `template` from compile or null; not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn sluice_template_free(template: *mut Template) {
    if !template.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(template))));
    }
}

/// # Safety
/// `buffer` as this crate filled it; not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn sluice_text_buffer_free(buffer: Buffer) {
    if !buffer.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.data, buffer.len)));
    }
}
