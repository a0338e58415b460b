//! The methods of Python's str, dict and list that templates call.
//!
//! They work on the plain form of a string and cut their results out of the original, so marks
//! survive (color.rs). Methods that would change a list or dict are refused, as transformers'
//! sandbox does.

use indexmap::IndexMap;
use minijinja::Value;

use crate::color::{self, paint_like, plain_char, Text};
use crate::lexer::is_space;
use crate::ops::{check_len, eq, escaped, find_all};
use crate::value::{
    as_dict, as_list, dict, fail, int_or, is_set, list, sequence, to_vec, type_name, want_int,
    want_str,
};
use crate::value::{Args, Kind, Result};

const STR: [&str; 43] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
];
const STR_MORE: [&str; 1] = ["zfill"];
const DICT: [&str; 5] = ["copy", "get", "items", "keys", "values"];
const LIST: [&str; 3] = ["copy", "count", "index"];
const MUTATING: [&str; 11] = [
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
];

/// Whether `.name` may be a method of a Python builtin, so that the attribute rules differ.
pub fn is_python_method(name: &str) -> bool {
    STR.contains(&name)
        || STR_MORE.contains(&name)
        || DICT.contains(&name)
        || LIST.contains(&name)
        || MUTATING.contains(&name)
}

/// Whether this value has this method.
pub fn has_method(value: &Value, name: &str) -> bool {
    if value.as_str().is_some() {
        return STR.contains(&name) || STR_MORE.contains(&name);
    }
    if as_dict(value).is_some() {
        return DICT.contains(&name)
            || ["clear", "pop", "popitem", "setdefault", "update"].contains(&name);
    }
    match as_list(value).map(|l| l.kind) {
        Some(Kind::List) => {
            LIST.contains(&name)
                || (MUTATING.contains(&name)
                    && !["popitem", "setdefault", "update"].contains(&name))
        }
        Some(Kind::Tuple) => name == "count" || name == "index",
        _ => false,
    }
}

pub fn call(value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    if !has_method(value, name) {
        return fail(format!("'{} object' has no attribute '{name}'", type_name(value)));
    }
    if let Some(text) = value.as_str() {
        return if value.is_safe() {
            markup_method(text, name, args)
        } else {
            str_method(text, name, args)
        };
    }
    if MUTATING.contains(&name) {
        return fail(format!(
            "access to attribute '{name}' of '{}' object is unsafe",
            type_name(value)
        ));
    }
    if as_dict(value).is_some() {
        return dict_method(value, name, args);
    }
    list_method(value, name, args)
}

fn dict_method(value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    let Some(map) = as_dict(value) else { return Ok(Value::UNDEFINED) };
    if name == "get" {
        let [key, default] = Args::new("get", args)?.bind(["key", "default"])?;
        let Some(key) = key else { return fail("get expected at least 1 argument, got 0") };
        return Ok(map.get(&key).cloned().or(default).unwrap_or(Value::from(())));
    }
    Args::new(name, args)?.bind([])?;
    match name {
        "copy" => dict(map.map.clone()),
        "keys" => sequence(map.map.keys().cloned().collect(), Kind::View("dict_keys")),
        "values" => sequence(map.map.values().cloned().collect(), Kind::View("dict_values")),
        _ => sequence(pairs(&map.map)?, Kind::View("dict_items")),
    }
}

/// (key, value) tuples.
pub fn pairs(map: &IndexMap<Value, Value>) -> Result<Vec<Value>> {
    map.iter().map(|(k, v)| sequence(vec![k.clone(), v.clone()], Kind::Tuple)).collect()
}

fn list_method(value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    let items = to_vec(value)?;
    if name == "copy" {
        return list(items);
    }
    let [what] = Args::new(name, args)?.bind(["value"])?;
    let what = what.unwrap_or(Value::UNDEFINED);
    if name == "count" {
        return Ok(Value::from(items.iter().filter(|item| eq(item, &what)).count()));
    }
    match items.iter().position(|item| eq(item, &what)) {
        Some(at) => Ok(Value::from(at)),
        None => fail("value is not in list"),
    }
}

fn str_method(raw: &str, name: &str, args: &[Value]) -> Result<Value> {
    let text = Text::new(raw);
    match name {
        "upper" | "lower" | "casefold" | "swapcase" | "capitalize" | "title" => {
            Args::new(name, args)?.bind([])?;
            Ok(Value::from(change_case(raw, name)))
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = Args::new(name, args)?.bind(["chars"])?;
            Ok(Value::from(strip(&text, name, chars)?))
        }
        "split" | "rsplit" => split(&text, name, args),
        "splitlines" => splitlines(&text, args),
        "partition" | "rpartition" => partition(&text, name, args),
        "startswith" | "endswith" => affix(&text, name, args),
        "removeprefix" | "removesuffix" => {
            let [affix] = Args::new(name, args)?.bind(["affix"])?;
            let affix = want_str(&affix.unwrap_or(Value::UNDEFINED), name)?;
            Ok(Value::from(remove_affix(&text, name, &color::plain(&affix))))
        }
        "find" | "rfind" | "index" | "rindex" | "count" => search(&text, name, args),
        "replace" => {
            let [old, new, count] = Args::new(name, args)?.bind(["old", "new", "count"])?;
            let (old, new) = (old.unwrap_or(Value::UNDEFINED), new.unwrap_or(Value::UNDEFINED));
            let most = int_or(&count, -1, "replace count")?;
            Ok(Value::from(replace(
                &text,
                &want_str(&old, "replace() argument 1")?,
                &want_str(&new, "replace() argument 2")?,
                most,
            )?))
        }
        "join" => {
            let [items] = Args::new(name, args)?.bind(["iterable"])?;
            join(raw, &to_vec(&items.unwrap_or(Value::UNDEFINED))?)
        }
        "zfill" | "ljust" | "rjust" | "center" => pad(&text, name, args),
        "format" => crate::format::str_format(raw, args),
        "format_map" => {
            let [map] = Args::new(name, args)?.bind(["mapping"])?;
            let map = map.unwrap_or(Value::UNDEFINED);
            crate::format::format_with(raw, &[], &|key| {
                Ok(crate::value::as_dict(&map).and_then(|m| m.get(&Value::from(key)).cloned()))
            })
        }
        "encode" | "expandtabs" => fail(format!("str.{name} is not supported")),
        _ => {
            Args::new(name, args)?.bind([])?;
            Ok(Value::from(is_class(text.plain(), name)))
        }
    }
}

// Methods of Markup: string arguments are escaped and results stay Markup.
fn markup_method(text: &str, name: &str, args: &[Value]) -> Result<Value> {
    let keeps =
        ["split", "rsplit", "startswith", "endswith", "find", "rfind", "index", "rindex", "count"]
            .contains(&name);
    let mut given: Vec<Value> =
        if keeps { args.to_vec() } else { args.iter().map(escaped).collect() };
    if let (true, Some(items)) = (name == "join", args.first()) {
        given = vec![list(to_vec(items)?.iter().map(escaped).collect())?];
    }
    let result = str_method(text, name, &given)?;
    let safe = |value: &Value| {
        value.as_str().map_or(value.clone(), |text| Value::from_safe_string(text.to_string()))
    };
    match as_list(&result) {
        Some(parts) => sequence(parts.items.iter().map(safe).collect(), parts.kind),
        None => Ok(safe(&result)),
    }
}

fn is_class(text: &str, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    match name {
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => text.is_ascii(),
        "isdecimal" | "isdigit" => all(|c| c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric())),
        "isnumeric" => all(char::is_numeric),
        "isspace" => all(is_space),
        "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
        "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
        "istitle" => text.chars().any(char::is_uppercase) && change_case(text, "title") == text,
        _ => {
            let mut chars = text.chars();
            chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
                && chars.all(|c| c == '_' || c.is_alphanumeric())
        }
    }
}

/// upper, lower, casefold, swapcase, capitalize and title, marks kept.
pub fn change_case(raw: &str, name: &str) -> String {
    if !color::may_be_painted(raw) {
        match name {
            "upper" => return raw.to_uppercase(),
            "lower" => return raw.to_lowercase(),
            _ => {}
        }
    }
    let mut out = String::with_capacity(raw.len());
    let mut in_word = false;
    for (i, marked) in raw.chars().enumerate() {
        let c = plain_char(marked);
        let up = match name {
            "upper" => true,
            "swapcase" => c.is_lowercase(),
            "capitalize" => i == 0,
            "title" => !in_word,
            _ => false,
        };
        in_word = c.is_lowercase() || c.is_uppercase();
        if up {
            out.extend(c.to_uppercase().map(|c| paint_like(marked, c)));
        } else {
            out.extend(c.to_lowercase().map(|c| paint_like(marked, c)));
        }
    }
    out
}

pub fn strip<'a>(text: &Text<'a>, name: &str, chars: Option<Value>) -> Result<&'a str> {
    let set: Option<Vec<char>> = match chars.filter(|c| !c.is_none()) {
        Some(chars) => {
            Some(color::plain(&want_str(&chars, &format!("{name} arg"))?).chars().collect())
        }
        None => None,
    };
    let drops = |c: char| set.as_ref().map_or_else(|| is_space(c), |set| set.contains(&c));
    let plain = text.plain();
    let start =
        if name == "rstrip" { 0 } else { plain.len() - plain.trim_start_matches(drops).len() };
    let end = if name == "lstrip" {
        plain.len()
    } else {
        start + plain[start..].trim_end_matches(drops).len()
    };
    Ok(text.cut(start, end))
}

fn split(text: &Text, name: &str, args: &[Value]) -> Result<Value> {
    let [sep, most] = Args::new(name, args)?.bind(["sep", "maxsplit"])?;
    let most = usize::try_from(int_or(&most, -1, "maxsplit")?).unwrap_or(usize::MAX);
    let plain = text.plain();
    let mut cuts: Vec<(usize, usize)> = match sep.filter(|s| !s.is_none()) {
        Some(sep) => {
            let sep = want_str(&sep, "split separator")?;
            if sep.is_empty() {
                return fail("empty separator");
            }
            if name == "split" {
                find_all(text, &sep, most)
            } else {
                let mut cuts: Vec<_> = plain
                    .rmatch_indices(&*color::plain(&sep))
                    .take(most)
                    .map(|(at, s)| (at, at + s.len()))
                    .collect();
                cuts.reverse();
                cuts
            }
        }
        None => return split_space(text, name, most),
    };
    cuts.push((plain.len(), plain.len()));
    let mut start = 0;
    let mut out = Vec::with_capacity(cuts.len());
    for (from, to) in cuts {
        out.push(Value::from(text.cut(start, from)));
        start = to;
    }
    list(out)
}

// Runs of whitespace separate; with a limit the rest keeps its inner spaces.
fn split_space(text: &Text, name: &str, most: usize) -> Result<Value> {
    let plain = text.plain();
    let mut words = Vec::new();
    if name == "split" {
        let mut at = plain.len() - plain.trim_start_matches(is_space).len();
        while at < plain.len() {
            let word = if words.len() < most { plain[at..].find(is_space) } else { None };
            let end = word.map_or(plain.len(), |len| at + len);
            words.push(Value::from(text.cut(at, end)));
            at = plain.len() - plain[end..].trim_start_matches(is_space).len();
        }
    } else {
        let mut end = plain.trim_end_matches(is_space).len();
        while end > 0 {
            let word = plain[..end].trim_end_matches(|c| !is_space(c)).len();
            let start = if words.len() < most { word } else { 0 };
            words.push(Value::from(text.cut(start, end)));
            end = plain[..start].trim_end_matches(is_space).len();
        }
        words.reverse();
    }
    list(words)
}

fn splitlines(text: &Text, args: &[Value]) -> Result<Value> {
    let [keep] = Args::new("splitlines", args)?.bind(["keepends"])?;
    let keep = is_set(&keep);
    let plain = text.plain();
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = plain.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        ) {
            continue;
        }
        let mut end = at + c.len_utf8();
        if c == '\r' && matches!(chars.peek(), Some((_, '\n'))) {
            chars.next();
            end += 1;
        }
        lines.push(Value::from(text.cut(start, if keep { end } else { at })));
        start = end;
    }
    if start < plain.len() {
        lines.push(Value::from(text.cut(start, plain.len())));
    }
    list(lines)
}

fn partition(text: &Text, name: &str, args: &[Value]) -> Result<Value> {
    let [sep] = Args::new(name, args)?.bind(["sep"])?;
    let sep = want_str(&sep.unwrap_or(Value::UNDEFINED), name)?;
    let sep = color::plain(&sep);
    if sep.is_empty() {
        return fail("empty separator");
    }
    let plain = text.plain();
    let found = if name == "partition" { plain.find(&*sep) } else { plain.rfind(&*sep) };
    let parts = match found {
        Some(at) => {
            [text.cut(0, at), text.cut(at, at + sep.len()), text.cut(at + sep.len(), plain.len())]
        }
        None if name == "partition" => [text.raw(), "", ""],
        None => ["", "", text.raw()],
    };
    sequence(parts.iter().map(|p| Value::from(*p)).collect(), Kind::Tuple)
}

// Python's [start:end] of the plain text in characters; None when start lies past the end.
fn window<'t>(
    text: &'t Text,
    start: &Option<Value>,
    end: &Option<Value>,
) -> Result<Option<(usize, &'t str)>> {
    let plain = text.plain();
    let len = plain.chars().count() as i64;
    let fix = |i: i64| if i < 0 { (i + len).max(0) } else { i };
    let (from, to) = (fix(int_or(start, 0, "start")?), fix(int_or(end, len, "end")?).min(len));
    if from > to {
        return Ok(None);
    }
    let byte = |n: i64| plain.char_indices().nth(n as usize).map_or(plain.len(), |(at, _)| at);
    let (from_byte, to_byte) = (byte(from), byte(to));
    Ok(Some((from as usize, &plain[from_byte..to_byte])))
}

fn affix(text: &Text, name: &str, args: &[Value]) -> Result<Value> {
    let [what, start, end] = Args::new(name, args)?.bind(["prefix", "start", "end"])?;
    let what = what.unwrap_or(Value::UNDEFINED);
    let options = match as_list(&what) {
        Some(tuple) if tuple.kind == Kind::Tuple => tuple.items.clone(),
        _ => vec![what],
    };
    let part = window(text, &start, &end)?;
    let mut found = false;
    for option in &options {
        let Some(option) = option.as_str() else {
            return fail(format!(
                "{name} first arg must be str or a tuple of str, not {}",
                type_name(option)
            ));
        };
        let option = color::plain(option);
        found |= part.is_some_and(|(_, t)| {
            if name == "startswith" {
                t.starts_with(&*option)
            } else {
                t.ends_with(&*option)
            }
        });
    }
    Ok(Value::from(found))
}

fn remove_affix<'a>(text: &Text<'a>, name: &str, affix: &str) -> &'a str {
    let plain = text.plain();
    if name == "removeprefix" && plain.starts_with(affix) {
        text.cut(affix.len(), plain.len())
    } else if name == "removesuffix" && plain.ends_with(affix) {
        text.cut(0, plain.len() - affix.len())
    } else {
        text.raw()
    }
}

fn search(text: &Text, name: &str, args: &[Value]) -> Result<Value> {
    let [what, start, end] = Args::new(name, args)?.bind(["sub", "start", "end"])?;
    let what = want_str(&what.unwrap_or(Value::UNDEFINED), &format!("{name}() argument 1"))?;
    let what = color::plain(&what);
    let part = window(text, &start, &end)?;
    if name == "count" {
        return Ok(Value::from(part.map_or(0, |(_, t)| {
            if what.is_empty() {
                t.chars().count() + 1
            } else {
                t.matches(&*what).count()
            }
        })));
    }
    let found = part.and_then(|(first, t)| {
        let at = if name.starts_with('r') { t.rfind(&*what) } else { t.find(&*what) }?;
        Some(first + t[..at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::from(at)),
        None if name.ends_with("find") => Ok(Value::from(-1)),
        None => fail("substring not found"),
    }
}

/// str.replace; a negative `most` replaces all.
pub fn replace(text: &Text, old: &str, new: &str, most: i64) -> Result<String> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut out = String::new();
    let mut last = 0;
    for (from, to) in find_all(text, old, most) {
        out.push_str(text.cut(last, from));
        out.push_str(new);
        last = to;
        check_len(out.len())?;
    }
    out.push_str(text.cut(last, text.plain().len()));
    Ok(out)
}

fn join(separator: &str, items: &[Value]) -> Result<Value> {
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        let Some(text) = item.as_str() else {
            return fail(format!(
                "sequence item {i}: expected str instance, {} found",
                type_name(item)
            ));
        };
        out.push_str(if i > 0 { separator } else { "" });
        out.push_str(text);
        check_len(out.len())?;
    }
    Ok(Value::from(out))
}

fn pad(text: &Text, name: &str, args: &[Value]) -> Result<Value> {
    let [width, fill] = Args::new(name, args)?.bind(["width", "fillchar"])?;
    let width = want_int(&width.unwrap_or(Value::UNDEFINED), "width")?;
    let fill = match fill {
        Some(fill) => want_str(&fill, "fillchar")?,
        None => (if name == "zfill" { "0" } else { " " }).to_string(),
    };
    let len = text.plain().chars().count();
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(len);
    check_len(missing.saturating_mul(fill.len()))?;
    let (left, right) = match name {
        "ljust" => (0, missing),
        "center" => {
            let left = missing / 2 + (missing & width as usize & 1);
            (left, missing - left)
        }
        _ => (missing, 0),
    };
    let signed = name == "zfill" && text.plain().starts_with(['+', '-']);
    let (sign, rest) =
        if signed { (text.cut(0, 1), text.cut(1, text.plain().len())) } else { ("", text.raw()) };
    Ok(Value::from(format!("{sign}{}{rest}{}", fill.repeat(left), fill.repeat(right))))
}
