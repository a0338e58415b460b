//! How Python prints values: str() and repr().

use std::fmt::Write;

use minijinja::value::ValueKind;
use minijinja::Value;

use crate::color::{is_painted_char, paint_char, plain_char};
use crate::ops::{check_len, Num};
use crate::value::{as_dict, as_list, Kind, Result};

/// repr() of a float: the shortest digits that read back, exponents from 1e16 and below 1e-4.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

/// str(value), appended.
pub fn py_str(value: &Value, out: &mut String) -> Result<()> {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => py_repr(value, out)?,
    }
    Ok(())
}

pub fn to_text(value: &Value) -> Result<String> {
    let mut out = String::new();
    py_str(value, &mut out)?;
    Ok(out)
}

/// repr(value), appended.
pub fn py_repr(value: &Value, out: &mut String) -> Result<()> {
    check_len(out.len())?;
    if let Some(text) = value.as_str() {
        repr_str(text, out);
    } else if let Some(seq) = as_list(value) {
        repr_sequence(seq.kind, seq.take(), out)?;
    } else if let Some(dict) = as_dict(value) {
        out.push('{');
        for (i, (key, value)) in dict.map.iter().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            py_repr(key, out)?;
            out.push_str(": ");
            py_repr(value, out)?;
        }
        out.push('}');
    } else {
        match (value.kind(), Num::of(value)) {
            (ValueKind::None, _) => out.push_str("None"),
            (ValueKind::Undefined, _) => out.push_str("Undefined"),
            (ValueKind::Bool, _) => out.push_str(if value.is_true() { "True" } else { "False" }),
            (_, Some(Num::Float(f))) => out.push_str(&float_repr(f)),
            _ => write!(out, "{value}").unwrap_or_default(),
        }
    }
    Ok(())
}

fn repr_sequence(kind: Kind, items: &[Value], out: &mut String) -> Result<()> {
    if let Kind::View(name) = kind {
        out.push_str(name);
    }
    let (open, close) = match kind {
        Kind::List => ("[", "]"),
        Kind::Tuple if items.len() == 1 => ("(", ",)"),
        Kind::Tuple | Kind::Group => ("(", ")"),
        Kind::View(_) => ("([", "])"),
        Kind::Generator => ("<generator object [", "]>"),
    };
    out.push_str(open);
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        py_repr(item, out)?;
    }
    out.push_str(close);
    Ok(())
}

// Format, private-use and separator characters that repr() escapes besides control characters.
fn printable(c: char) -> bool {
    let code = c as u32;
    let hidden = matches!(code, 0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x180E)
        || matches!(code, 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xE000..=0xF8FF)
        || matches!(code, 0xFEFF | 0xFFF0..=0xFFFB | 0xFFFE | 0xFFFF)
        || code >= 0xE0000 && !(0xE0100..=0xE01EF).contains(&code);
    c == ' ' || !(hidden || c.is_control() || c.is_whitespace())
}

fn repr_str(text: &str, out: &mut String) {
    let has = |wanted: char| text.chars().any(|c| plain_char(c) == wanted);
    let quote = if has('\'') && !has('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        let origin = plain_char(c);
        let code = origin as u32;
        let escaped = match origin {
            '\n' => "\\n".to_string(),
            '\r' => "\\r".to_string(),
            '\t' => "\\t".to_string(),
            '\\' => "\\\\".to_string(),
            _ if origin == quote => format!("\\{origin}"),
            _ if printable(origin) => {
                out.push(c);
                continue;
            }
            _ if code < 0x100 => format!("\\x{code:02x}"),
            _ if code < 0x10000 => format!("\\u{code:04x}"),
            _ => format!("\\U{code:08x}"),
        };
        if is_painted_char(c) {
            out.extend(escaped.chars().map(paint_char));
        } else {
            out.push_str(&escaped);
        }
    }
    out.push(quote);
}
