//! Jinja's filters with Python's behaviour.

use std::cmp::Ordering;

use indexmap::IndexMap;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use crate::color::{self, Text};
use crate::lexer::is_space;
use crate::methods::{change_case, pairs, replace, strip};
use crate::ops::{add, check_len, eq, escape_html, int_value, order, Num};
use crate::repr::{py_str, to_text};
use crate::value::{
    as_dict, as_list, fail, int_or, is_set, item, list, sequence, to_vec, type_name, want_int,
    want_str,
};
use crate::value::{Args, Kind, Result};

/// Every filter there is; the translator names others as unknown.
pub const NAMES: [&str; 47] = [
    "from_json",
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "wordcount",
];

/// Applies the filter `name`; args[0] is the value.
pub fn call(state: &State, name: &str, args: &[Value]) -> Result<Value> {
    match name {
        "tojson" => crate::json::tojson(args),
        "from_json" => crate::json::from_json(args),
        "map" => map(state, args),
        "select" | "reject" | "selectattr" | "rejectattr" => select(state, name, args),
        "format" => format_filter(args),
        "default" | "d" => {
            let [value, default, boolean] =
                Args::new(name, args)?.bind(["value", "default_value", "boolean"])?;
            let value = value.unwrap_or(Value::UNDEFINED);
            let missing = value.is_undefined() || (is_set(&boolean) && !value.is_true());
            Ok(if missing { default.unwrap_or(Value::from("")) } else { value })
        }
        "upper" | "lower" | "capitalize" | "title" | "string" | "safe" | "trim" | "escape"
        | "e" | "forceescape" | "center" | "truncate" | "indent" | "replace" | "wordcount" => {
            text_filter(name, args)
        }
        "abs" | "int" | "float" | "round" => number_filter(name, args),
        "sort" | "unique" | "max" | "min" | "groupby" | "dictsort" | "sum" => ordered(name, args),
        _ => sequence_filter(name, args),
    }
}

fn text_filter(name: &str, args: &[Value]) -> Result<Value> {
    let [value, a, b, c, d] = Args::new(name, args)?.bind(match name {
        "trim" => ["value", "chars", "", "", ""],
        "center" => ["value", "width", "", "", ""],
        "truncate" => ["s", "length", "killwords", "end", "leeway"],
        "indent" => ["s", "width", "first", "blank", ""],
        "replace" => ["s", "old", "new", "count", ""],
        _ => ["value", "", "", "", ""],
    })?;
    let value = value.unwrap_or(Value::UNDEFINED);
    if value.as_str().is_none() {
        match name {
            "indent" => return fail(format!("indent: str is required, not {}", type_name(&value))),
            "truncate" => {
                let most = int_or(&a, 255, "length")?.saturating_add(int_or(&d, 5, "leeway")?);
                if length(&value)? as i64 <= most {
                    return Ok(value);
                }
            }
            _ => {}
        }
    }
    let raw = to_text(&value)?;
    let text = Text::new(&raw);
    let markup = match name {
        "upper" | "lower" | "capitalize" | "trim" | "string" | "indent" | "center" => {
            value.is_safe()
        }
        _ => ["safe", "escape", "e", "forceescape"].contains(&name),
    };
    let result = match name {
        "upper" | "lower" | "capitalize" => change_case(&raw, name),
        "title" => title(&raw),
        "trim" => strip(&text, "strip", a)?.to_string(),
        "escape" | "e" if value.is_safe() => raw,
        "escape" | "e" | "forceescape" => escape_html(&raw),
        "center" => {
            let width = Value::from(int_or(&a, 80, "width")?);
            to_text(&crate::methods::call(&Value::from(raw.as_str()), "center", &[width])?)?
        }
        "truncate" => {
            truncate(&text, int_or(&a, 255, "length")?, is_set(&b), c, int_or(&d, 5, "leeway")?)?
        }
        "indent" => indent(&text, a, is_set(&b), is_set(&c))?,
        "replace" => {
            let (old, new) = (
                to_text(&a.unwrap_or(Value::UNDEFINED))?,
                to_text(&b.unwrap_or(Value::UNDEFINED))?,
            );
            replace(&text, &old, &new, int_or(&c, -1, "count")?)?
        }
        "wordcount" => return Ok(Value::from(word_count(text.plain()))),
        _ => raw,
    };
    Ok(if markup { Value::from_safe_string(result) } else { Value::from(result) })
}

// Each word's first letter up, the rest down; words start after spaces and -({[<.
fn title(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        let mut chars = word.chars();
        if let Some(first) = chars.next() {
            out.push_str(&change_case(&first.to_string(), "upper"));
            out.push_str(&change_case(chars.as_str(), "lower"));
        }
        word.clear();
    };
    for c in raw.chars() {
        let origin = color::plain_char(c);
        if is_space(origin) || "-({[<".contains(origin) {
            flush(&mut word, &mut out);
            out.push(c);
        } else {
            word.push(c);
        }
    }
    flush(&mut word, &mut out);
    out
}

fn word_count(text: &str) -> usize {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count()
}

fn truncate(
    text: &Text,
    length: i64,
    kill: bool,
    end: Option<Value>,
    leeway: i64,
) -> Result<String> {
    let end = end.map_or(Ok("...".to_string()), |e| to_text(&e))?;
    let chars: Vec<(usize, char)> = text.plain().char_indices().collect();
    if chars.len() as i64 <= length + leeway {
        return Ok(text.raw().to_string());
    }
    let keep = (length - end.chars().count() as i64).max(0) as usize;
    let mut stop = chars.get(keep).map_or(text.plain().len(), |(at, _)| *at);
    if !kill {
        stop = text.plain()[..stop].rfind(' ').unwrap_or(stop);
    }
    Ok(text.cut(0, stop).to_string() + &end)
}

fn indent(text: &Text, width: Option<Value>, first: bool, blank: bool) -> Result<String> {
    let prefix = match width {
        Some(width) if width.as_str().is_some() => to_text(&width)?,
        width => " ".repeat(int_or(&width, 4, "width")?.clamp(0, 1024) as usize),
    };
    // Python adds a newline first, so that a final line break does not count as a line of its own.
    let source = format!("{}\n", text.raw());
    let source = Text::new(&source);
    let lines = to_vec(&crate::methods::call(&Value::from(source.raw()), "splitlines", &[])?)?;
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        let line = to_text(line)?;
        out.push_str(if i > 0 { "\n" } else { "" });
        if if i == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&prefix);
        }
        out.push_str(&line);
        check_len(out.len())?;
    }
    Ok(out)
}

fn format_filter(args: &[Value]) -> Result<Value> {
    let (mut positional, keywords) = Args::new("format", args)?.into_parts();
    if positional.is_empty() {
        return fail("format needs a value");
    }
    let text = Value::from(to_text(&positional.remove(0))?);
    if keywords.is_empty() {
        return crate::format::percent(&text, &sequence(positional, Kind::Tuple)?);
    }
    let map: IndexMap<Value, Value> =
        keywords.into_iter().map(|(k, v)| (Value::from(k), v)).collect();
    crate::format::percent(&text, &crate::value::dict(map)?)
}

fn number_filter(name: &str, args: &[Value]) -> Result<Value> {
    let [value, a, b] = Args::new(name, args)?.bind(match name {
        "round" => ["value", "precision", "method"],
        "int" => ["value", "default", "base"],
        "float" => ["value", "default", ""],
        _ => ["value", "", ""],
    })?;
    let value = value.unwrap_or(Value::UNDEFINED);
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, format!("{name} of an undefined value")));
    }
    match (name, Num::of(&value)) {
        ("abs", Some(Num::Int(i))) => Ok(int_value(i.wrapping_abs())),
        ("abs", Some(Num::Float(f))) => Ok(Value::from(f.abs())),
        ("round", Some(number)) => round(number, int_or(&a, 0, "precision")?, b),
        ("int", Some(Num::Int(i))) => Ok(int_value(i)),
        ("int", Some(Num::Float(f))) if f.is_finite() => Ok(int_value(f.trunc() as i128)),
        ("int", _) => {
            Ok(parse_int(&value, int_or(&b, 10, "base")?).unwrap_or(a.unwrap_or(Value::from(0))))
        }
        ("float", Some(number)) => Ok(Value::from(number.as_f64())),
        ("float", _) => {
            Ok(parse_float(&value).map(Value::from).unwrap_or(a.unwrap_or(Value::from(0.0))))
        }
        _ => fail(format!("{name}: a number is required, not {}", type_name(&value))),
    }
}

fn parse_float(value: &Value) -> Option<f64> {
    let text = color::plain(value.as_str()?).trim_matches(is_space).to_ascii_lowercase();
    let body = text.trim_start_matches(['+', '-']);
    let special = ["inf", "infinity", "nan"].contains(&body);
    let digits = body.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if special || digits {
        text.replace('_', "").parse().ok()
    } else {
        None
    }
}

fn parse_int(value: &Value, base: i64) -> Option<Value> {
    let text =
        color::plain(value.as_str()?).trim_matches(is_space).replace('_', "").to_ascii_lowercase();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (radix, digits) = match (base, digits.get(..2)) {
        (16 | 0, Some("0x")) => (16, &digits[2..]),
        (8 | 0, Some("0o")) => (8, &digits[2..]),
        (2 | 0, Some("0b")) => (2, &digits[2..]),
        (0, _) => (10, digits),
        _ => (u32::try_from(base).ok()?, digits),
    };
    if (2..=36).contains(&radix) && !digits.starts_with(['+', '-']) {
        if let Ok(value) = i128::from_str_radix(digits, radix) {
            return Some(int_value(if negative { -value } else { value }));
        }
    }
    parse_float(value).filter(|f| f.is_finite()).map(|f| int_value(f.trunc() as i128))
}

fn round(number: Num, precision: i64, method: Option<Value>) -> Result<Value> {
    let method = method.map_or(Ok("common".to_string()), |m| plain_str(&m, "round method"))?;
    let value = number.as_f64();
    let scale = 10f64.powi(precision.clamp(-300, 300) as i32);
    Ok(Value::from(match method.as_str() {
        "ceil" => (value * scale).ceil() / scale,
        "floor" => (value * scale).floor() / scale,
        "common" if matches!(number, Num::Int(_)) => return Ok(int_round(number, precision)),
        // Formatting rounds the exact binary value half to even, which is what Python does.
        "common" if precision >= 0 => {
            format!("{value:.*}", precision.min(300) as usize).parse().unwrap_or(value)
        }
        "common" => (value * scale).round_ties_even() / scale,
        _ => return fail("round: method must be common, ceil or floor"),
    }))
}

// round() of an int stays an int in Python; half goes to even.
fn int_round(number: Num, precision: i64) -> Value {
    let Num::Int(value) = number else { return Value::from(number.as_f64()) };
    let Some(unit) = 10i128.checked_pow(precision.min(0).unsigned_abs().min(64) as u32) else {
        return Value::from(0);
    };
    let (whole, rest) = (value.div_euclid(unit), value.rem_euclid(unit));
    let up = rest * 2 > unit || (rest * 2 == unit && whole % 2 != 0);
    int_value((whole + i128::from(up)) * unit)
}

fn length(value: &Value) -> Result<usize> {
    if let Some(text) = value.as_str() {
        return Ok(text.chars().count());
    }
    let sized = match as_list(value) {
        Some(seq) => seq.has_len(),
        None => as_dict(value).is_some() || value.is_undefined(),
    };
    match sized {
        true => Ok(value.len().unwrap_or(0)),
        false => fail(format!("object of type '{}' has no len()", type_name(value))),
    }
}

fn sequence_filter(name: &str, args: &[Value]) -> Result<Value> {
    let [value, a, b] = Args::new(name, args)?.bind(match name {
        "batch" => ["value", "linecount", "fill_with"],
        "slice" => ["value", "slices", "fill_with"],
        "join" => ["value", "d", "attribute"],
        "attr" => ["obj", "name", ""],
        _ => ["value", "", ""],
    })?;
    let value = value.unwrap_or(Value::UNDEFINED);
    match name {
        "length" | "count" => Ok(Value::from(length(&value)?)),
        "list" => list(to_vec(&value)?),
        "first" => match as_list(&value) {
            Some(seq) => Ok(seq.next().unwrap_or(Value::UNDEFINED)),
            None => Ok(to_vec(&value)?.into_iter().next().unwrap_or(Value::UNDEFINED)),
        },
        "last" => match as_list(&value) {
            Some(seq) if !seq.has_len() => fail("'generator' object is not reversible"),
            _ => Ok(to_vec(&value)?.pop().unwrap_or(Value::UNDEFINED)),
        },
        "reverse" => match value.as_str() {
            Some(text) => Ok(Value::from(text.chars().rev().collect::<String>())),
            None => sequence(to_vec(&value)?.into_iter().rev().collect(), Kind::Generator),
        },
        "items" => match as_dict(&value) {
            Some(map) => sequence(pairs(&map.map)?, Kind::Generator),
            None if value.is_undefined() => sequence(Vec::new(), Kind::Generator),
            None => fail("Can only get item pairs from a mapping."),
        },
        "join" => join(to_vec(&value)?, a, b),
        "batch" => batch(to_vec(&value)?, int_or(&a, 1, "linecount")?, b),
        "slice" => slices(to_vec(&value)?, int_or(&a, 1, "slices")?, b),
        "attr" => {
            let name = plain_str(&a.unwrap_or(Value::UNDEFINED), "attr name")?;
            // Attributes of Python objects only: items of a dict are not attributes.
            match as_dict(&value).is_some() && !crate::methods::has_method(&value, &name) {
                true => Ok(Value::UNDEFINED),
                false => crate::value::attribute(&value, &name),
            }
        }
        _ => fail(format!("no filter named '{name}'")),
    }
}

fn join(items: Vec<Value>, separator: Option<Value>, attribute: Option<Value>) -> Result<Value> {
    let separator = separator.map_or(Ok(String::new()), |s| to_text(&s))?;
    let path = Path::new(attribute)?;
    let mut out = String::new();
    for (i, value) in items.iter().enumerate() {
        out.push_str(if i > 0 { &separator } else { "" });
        py_str(&path.get(value)?, &mut out)?;
        check_len(out.len())?;
    }
    Ok(Value::from(out))
}

fn batch(items: Vec<Value>, size: i64, fill: Option<Value>) -> Result<Value> {
    let size = usize::try_from(size).unwrap_or(0).max(1);
    let mut rows = Vec::new();
    for chunk in items.chunks(size) {
        let mut row = chunk.to_vec();
        if let Some(fill) = fill.as_ref().filter(|f| !f.is_none()) {
            check_len(size)?;
            row.resize(size, fill.clone());
        }
        rows.push(list(row)?);
    }
    sequence(rows, Kind::Generator)
}

fn slices(items: Vec<Value>, count: i64, fill: Option<Value>) -> Result<Value> {
    let count = usize::try_from(count).unwrap_or(0).clamp(1, 1 << 16);
    let (each, extra) = (items.len() / count, items.len() % count);
    let mut at = 0;
    let mut rows = Vec::new();
    for row in 0..count {
        let size = each + usize::from(row < extra);
        let mut part = items[at..at + size].to_vec();
        at += size;
        if let Some(fill) = fill.as_ref().filter(|f| !f.is_none() && row >= extra) {
            part.push(fill.clone());
        }
        rows.push(list(part)?);
    }
    sequence(rows, Kind::Generator)
}

// An argument that names something: marks do not matter.
fn plain_str(value: &Value, what: &str) -> Result<String> {
    Ok(color::plain(&want_str(value, what)?).into_owned())
}

/// The attribute argument of a filter: `a.b.0`, an index, or nothing.
struct Path(Vec<Value>);

impl Path {
    fn new(attribute: Option<Value>) -> Result<Path> {
        let Some(attribute) = attribute.filter(|a| !a.is_none()) else {
            return Ok(Path(Vec::new()));
        };
        let Some(text) = attribute.as_str().map(color::plain) else {
            return Ok(Path(vec![Value::from(want_int(&attribute, "attribute")?)]));
        };
        Ok(Path(
            text.split('.')
                .map(|part| {
                    part.parse::<i64>().map(Value::from).unwrap_or_else(|_| Value::from(part))
                })
                .collect(),
        ))
    }

    fn get(&self, value: &Value) -> Result<Value> {
        self.0.iter().try_fold(value.clone(), |value, key| item(&value, key))
    }
}

fn map(state: &State, args: &[Value]) -> Result<Value> {
    let (mut positional, mut keywords) = Args::new("map", args)?.into_parts();
    // Falsy values give nothing without a look at their type, as in Jinja.
    let items = match positional.first() {
        Some(value) if value.is_true() => to_vec(value)?,
        _ => return sequence(Vec::new(), Kind::Generator),
    };
    let mut out = Vec::with_capacity(items.len());
    if positional.len() == 1 {
        let mut take =
            |name| keywords.iter().position(|(key, _)| key == name).map(|i| keywords.remove(i).1);
        let (attribute, default) = (take("attribute"), take("default"));
        if attribute.is_none() || !keywords.is_empty() {
            return fail("map requires a filter argument");
        }
        let path = Path::new(attribute)?;
        for value in &items {
            let found = path.get(value)?;
            out.push(if found.is_undefined() { default.clone().unwrap_or(found) } else { found });
        }
        return sequence(out, Kind::Generator);
    }
    positional.remove(0);
    let name = plain_str(&positional.remove(0), "filter name")?;
    if !keywords.is_empty() {
        positional.push(Value::from(minijinja::value::Kwargs::from_iter(keywords)));
    }
    for value in items {
        let args = [vec![value], positional.clone()].concat();
        out.push(state.apply_filter(&name, &args)?);
    }
    sequence(out, Kind::Generator)
}

fn select(_state: &State, name: &str, args: &[Value]) -> Result<Value> {
    let (mut positional, _) = Args::new(name, args)?.into_parts();
    if positional.is_empty() {
        return fail(format!("{name} needs a value"));
    }
    let value = positional.remove(0);
    if !value.is_true() {
        return sequence(Vec::new(), Kind::Generator);
    }
    let items = to_vec(&value)?;
    let path = if name.ends_with("attr") {
        if positional.is_empty() {
            return fail("Missing parameter for attribute name");
        }
        Path::new(Some(positional.remove(0)))?
    } else {
        Path(Vec::new())
    };
    let keep = name.starts_with("select");
    let mut out = Vec::new();
    for value in items {
        let tested = path.get(&value)?;
        let passed = match positional.split_first() {
            None => tested.is_true(),
            Some((test, rest)) => {
                crate::checks::call(&plain_str(test, "test name")?, &[&[tested], rest].concat())?
            }
        };
        if passed == keep {
            out.push(value);
        }
    }
    sequence(out, Kind::Generator)
}

// A sort key that ignores case unless told otherwise.
fn folded(value: Value, case_sensitive: bool) -> Value {
    match value.as_str() {
        Some(text) if !case_sensitive => Value::from(color::plain(text).to_lowercase()),
        _ => value,
    }
}

fn sort_by_key(items: &mut [(Value, Value)], reverse: bool) -> Result<()> {
    let mut problem = None;
    items.sort_by(|(a, _), (b, _)| match order(a, b, "<") {
        Ok(found) => {
            let found = found.unwrap_or(Ordering::Equal);
            if reverse {
                found.reverse()
            } else {
                found
            }
        }
        Err(error) => {
            problem.get_or_insert(error);
            Ordering::Equal
        }
    });
    problem.map_or(Ok(()), Err)
}

fn ordered(name: &str, args: &[Value]) -> Result<Value> {
    let [value, a, b, c] = Args::new(name, args)?.bind(match name {
        "sort" => ["value", "reverse", "case_sensitive", "attribute"],
        "dictsort" => ["value", "case_sensitive", "by", "reverse"],
        "groupby" => ["value", "attribute", "default", "case_sensitive"],
        "sum" => ["iterable", "attribute", "start", ""],
        _ => ["value", "case_sensitive", "attribute", ""],
    })?;
    let value = value.unwrap_or(Value::UNDEFINED);
    match name {
        "sum" => {
            let path = Path::new(a)?;
            let start = b.unwrap_or(Value::from(0));
            to_vec(&value)?.iter().try_fold(start, |total, item| add(&total, &path.get(item)?))
        }
        "dictsort" => {
            let Some(map) = as_dict(&value) else { return fail("dictsort needs a dict") };
            let at = match b.as_ref().and_then(|by| by.as_str()).map(color::plain).as_deref() {
                None | Some("key") => 0,
                Some("value") => 1,
                Some(_) => return fail("You can only sort by either \"key\" or \"value\""),
            };
            let key = |pair: &Value| {
                folded(pair.get_item(&Value::from(at)).unwrap_or_default(), is_set(&a))
            };
            let mut keyed: Vec<_> =
                pairs(&map.map)?.into_iter().map(|pair| (key(&pair), pair)).collect();
            sort_by_key(&mut keyed, is_set(&c))?;
            list(keyed.into_iter().map(|(_, pair)| pair).collect())
        }
        "groupby" => group_by(to_vec(&value)?, a, b, is_set(&c)),
        "sort" => {
            let (items, keys) = (to_vec(&value)?, sort_paths(c)?);
            let mut keyed = Vec::with_capacity(items.len());
            for item in items {
                let parts: Result<Vec<Value>> =
                    keys.iter().map(|path| Ok(folded(path.get(&item)?, is_set(&b)))).collect();
                keyed.push((sequence(parts?, Kind::Tuple)?, item));
            }
            sort_by_key(&mut keyed, is_set(&a))?;
            list(keyed.into_iter().map(|(_, item)| item).collect())
        }
        _ => {
            let path = Path::new(b)?;
            let mut keyed = Vec::new();
            for item in to_vec(&value)? {
                keyed.push((folded(path.get(&item)?, is_set(&a)), item));
            }
            if name == "unique" {
                unique(keyed)
            } else {
                extreme(name, keyed)
            }
        }
    }
}

// sort() takes several attributes separated by commas.
fn sort_paths(attribute: Option<Value>) -> Result<Vec<Path>> {
    match attribute.as_ref().and_then(|a| a.as_str()).map(color::plain) {
        Some(text) => text.split(',').map(|part| Path::new(Some(Value::from(part)))).collect(),
        None => Ok(vec![Path::new(attribute)?]),
    }
}

fn unique(keyed: Vec<(Value, Value)>) -> Result<Value> {
    let mut seen: Vec<Value> = Vec::new();
    let mut out = Vec::new();
    for (key, item) in keyed {
        if !seen.iter().any(|other| eq(other, &key)) {
            seen.push(key);
            out.push(item);
        }
    }
    sequence(out, Kind::Generator)
}

fn extreme(name: &str, keyed: Vec<(Value, Value)>) -> Result<Value> {
    let wanted = if name == "max" { Ordering::Greater } else { Ordering::Less };
    let mut best: Option<(Value, Value)> = None;
    for (key, item) in keyed {
        let better = match &best {
            None => true,
            Some((other, _)) => order(&key, other, "<")? == Some(wanted),
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or(Value::UNDEFINED, |(_, item)| item))
}

fn group_by(
    items: Vec<Value>,
    attribute: Option<Value>,
    default: Option<Value>,
    case_sensitive: bool,
) -> Result<Value> {
    let path = Path::new(attribute)?;
    let mut keyed = Vec::new();
    for item in items {
        let found = path.get(&item)?;
        let key = if found.is_undefined() { default.clone().unwrap_or(found) } else { found };
        keyed.push((folded(key.clone(), case_sensitive), sequence(vec![key, item], Kind::Tuple)?));
    }
    sort_by_key(&mut keyed, false)?;
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for (folded, pair) in keyed {
        let (key, item) = (pair.get_item(&Value::from(0))?, pair.get_item(&Value::from(1))?);
        match groups.last_mut() {
            Some((other, _, members)) if eq(other, &folded) => members.push(item),
            _ => groups.push((folded, key, vec![item])),
        }
    }
    let rows: Result<Vec<Value>> = groups
        .into_iter()
        .map(|(_, key, members)| sequence(vec![key, list(members)?], Kind::Group))
        .collect();
    list(rows?)
}

/// None and numbers cannot be looped over; everything else passes through.
pub fn iter(value: &Value) -> Result<Value> {
    match value.kind() {
        ValueKind::None | ValueKind::Number | ValueKind::Bool => {
            fail(format!("'{}' object is not iterable", type_name(value)))
        }
        ValueKind::Invalid => Err(Error::from(ErrorKind::BadSerialization)),
        _ => match value.as_str() {
            Some(text) => crate::ops::chars(text),
            None => Ok(value.clone()),
        },
    }
}
