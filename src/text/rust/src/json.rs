//! JSON in and out: conversation data to values, and transformers' `tojson` (Python's json.dumps).

use indexmap::IndexMap;
use minijinja::value::ValueKind;
use minijinja::Value;

use crate::color::{is_painted_char, paint, paint_char, plain_char};
use crate::ops::{check_len, Num};
use crate::repr::float_repr;
use crate::value::{as_dict, as_list, dict, fail, list, type_name, Args, Kind, Result};

// Roles that templates splice into their own control tokens (`<|` + role + `|>`): these stay the
// template's.
const KNOWN_ROLES: [&str; 16] = [
    "system",
    "user",
    "assistant",
    "tool",
    "developer",
    "function",
    "ipython",
    "model",
    "observation",
    "context",
    "tool_response",
    "tool_result",
    "environment",
    "documents",
    "human",
    "gpt",
];

/// Turns JSON into template values; with `mark` every string is painted as text of the
/// conversation, save the well-known roles and keys that are plain identifiers (no control token is
/// one).
pub fn to_value(json: &serde_json::Value, mark: bool) -> Result<Value> {
    Ok(match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(b) => Value::from(*b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (None, Some(u)) => Value::from(u),
            _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) if mark => Value::from(paint(text)),
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => {
            list(items.iter().map(|v| to_value(v, mark)).collect::<Result<_>>()?)?
        }
        serde_json::Value::Object(map) => {
            let mut out = IndexMap::with_capacity(map.len());
            for (key, value) in map {
                let known_role =
                    key == "role" && value.as_str().is_some_and(|role| KNOWN_ROLES.contains(&role));
                let innocent =
                    key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-. $".contains(&b));
                let key = if mark && !innocent { paint(key) } else { key.clone() };
                out.insert(Value::from(key), to_value(value, mark && !known_role)?);
            }
            dict(out)?
        }
    })
}

struct Style {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// The filter: tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False).
pub fn tojson(args: &[Value]) -> Result<Value> {
    let names = ["value", "ensure_ascii", "indent", "separators", "sort_keys"];
    let [value, ascii, indent, separators, sort] = Args::new("tojson", args)?.bind(names)?;
    let indent = match indent {
        Some(value) if value.as_str().is_some() => value.as_str().map(String::from),
        Some(value) if !value.is_none() => match Num::of(&value) {
            Some(Num::Int(n)) => Some(" ".repeat(n.clamp(0, 64) as usize)),
            _ => return fail("tojson: indent must be int or str"),
        },
        _ => None,
    };
    let mut style = Style {
        ascii: crate::value::is_set(&ascii),
        item: if indent.is_some() { "," } else { ", " }.into(),
        key: ": ".into(),
        sort: crate::value::is_set(&sort),
        indent,
    };
    if let Some(pair) = separators.filter(|v| !v.is_none()) {
        let pair = crate::value::to_vec(&pair)?;
        match (pair.first().and_then(|v| v.as_str()), pair.get(1).and_then(|v| v.as_str())) {
            (Some(item), Some(key)) if pair.len() == 2 => {
                (style.item, style.key) = (item.into(), key.into())
            }
            _ => return fail("tojson: separators must be two strings"),
        }
    }
    let mut out = String::new();
    write(&value.unwrap_or(Value::UNDEFINED), &style, 0, &mut out)?;
    Ok(Value::from(out))
}

/// The filter from_json, which some published templates count on though transformers lacks it.
pub fn from_json(args: &[Value]) -> Result<Value> {
    let [value] = Args::new("from_json", args)?.bind(["value"])?;
    let text = crate::value::want_str(&value.unwrap_or(Value::UNDEFINED), "from_json: value")?;
    match serde_json::from_str(&crate::color::plain(&text)) {
        Ok(json) => to_value(&json, crate::color::may_be_painted(&text)),
        Err(error) => fail(format!("from_json: {error}")),
    }
}

fn newline(style: &Style, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<()> {
    check_len(out.len())?;
    if let Some(text) = value.as_str() {
        write_str(text, style.ascii, out);
        return Ok(());
    }
    if let Some(seq) = as_list(value).filter(|seq| matches!(seq.kind, Kind::List | Kind::Tuple)) {
        out.push('[');
        for (i, item) in seq.items.iter().enumerate() {
            out.push_str(if i > 0 { &style.item } else { "" });
            newline(style, depth + 1, out);
            write(item, style, depth + 1, out)?;
        }
        if !seq.items.is_empty() {
            newline(style, depth, out);
        }
        out.push(']');
        return Ok(());
    }
    if let Some(map) = as_dict(value) {
        let mut pairs: Vec<(&Value, &Value)> = map.map.iter().collect();
        if style.sort {
            pairs.sort_by_key(|(key, _)| {
                crate::color::plain(key.as_str().unwrap_or_default()).into_owned()
            });
        }
        out.push('{');
        for (i, (key, item)) in pairs.iter().enumerate() {
            out.push_str(if i > 0 { &style.item } else { "" });
            newline(style, depth + 1, out);
            write_key(key, style, out)?;
            out.push_str(&style.key);
            write(item, style, depth + 1, out)?;
        }
        if !pairs.is_empty() {
            newline(style, depth, out);
        }
        out.push('}');
        return Ok(());
    }
    write_scalar(value, out)
}

fn write_key(key: &Value, style: &Style, out: &mut String) -> Result<()> {
    if let Some(text) = key.as_str() {
        write_str(text, style.ascii, out);
        return Ok(());
    }
    out.push('"');
    write_scalar(key, out)?;
    out.push('"');
    Ok(())
}

fn write_scalar(value: &Value, out: &mut String) -> Result<()> {
    match (value.kind(), Num::of(value)) {
        (ValueKind::None, _) => out.push_str("null"),
        (ValueKind::Bool, _) => out.push_str(if value.is_true() { "true" } else { "false" }),
        (_, Some(Num::Int(i))) => out.push_str(&i.to_string()),
        (_, Some(Num::Float(f))) => out.push_str(&match float_repr(f).as_str() {
            "nan" => "NaN".to_string(),
            "inf" => "Infinity".to_string(),
            "-inf" => "-Infinity".to_string(),
            text => text.to_string(),
        }),
        _ => return fail(format!("Object of type {} is not JSON serializable", type_name(value))),
    }
    Ok(())
}

fn write_str(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        let origin = plain_char(c);
        let escaped = match origin {
            '"' => "\\\"".to_string(),
            '\\' => "\\\\".to_string(),
            '\n' => "\\n".to_string(),
            '\r' => "\\r".to_string(),
            '\t' => "\\t".to_string(),
            '\x08' => "\\b".to_string(),
            '\x0c' => "\\f".to_string(),
            _ if (origin as u32) < 0x20 => format!("\\u{:04x}", origin as u32),
            _ if ascii && origin as u32 > 0x7e => {
                let mut units = [0u16; 2];
                origin
                    .encode_utf16(&mut units)
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}"))
                    .collect()
            }
            _ => {
                out.push(c);
                continue;
            }
        };
        if is_painted_char(c) {
            out.extend(escaped.chars().map(paint_char));
        } else {
            out.push_str(&escaped);
        }
    }
    out.push('"');
}
