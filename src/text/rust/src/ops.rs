//! Python's operators on template values. All text comparisons ignore marks (color.rs).

use std::cmp::Ordering;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use crate::color::{self, Text};
use crate::repr::py_str;
use crate::value::{as_dict, as_list, fail, list, sequence, to_vec, type_name, Kind, Result};

pub const STRING_BYTES_MAX: usize = 32 << 20;
const LIST_ITEMS_MAX: usize = 1 << 20;

#[derive(Clone, Copy)]
pub enum Num {
    Int(i128),
    Float(f64),
}

impl Num {
    pub fn of(value: &Value) -> Option<Num> {
        match value.kind() {
            ValueKind::Bool => Some(Num::Int(i128::from(value.is_true()))),
            ValueKind::Number if value.is_integer() => {
                i128::try_from(value.clone()).ok().map(Num::Int)
            }
            ValueKind::Number => f64::try_from(value.clone()).ok().map(Num::Float),
            _ => None,
        }
    }

    pub fn as_f64(self) -> f64 {
        match self {
            Num::Int(i) => i as f64,
            Num::Float(f) => f,
        }
    }
}

pub fn int_value(value: i128) -> Value {
    match i64::try_from(value) {
        Ok(small) => Value::from(small),
        Err(_) => Value::from(value),
    }
}

fn unsupported<T>(op: &str, a: &Value, b: &Value) -> Result<T> {
    if a.is_undefined() || b.is_undefined() {
        return Err(Error::new(
            ErrorKind::UndefinedError,
            format!("operand of '{op}' is undefined"),
        ));
    }
    fail(format!("unsupported operand type(s) for {op}: '{}' and '{}'", type_name(a), type_name(b)))
}

/// Refuses strings that a hostile template could grow without end.
pub fn check_len(bytes: usize) -> Result<()> {
    if bytes > STRING_BYTES_MAX {
        return fail(format!("string longer than {STRING_BYTES_MAX} bytes"));
    }
    Ok(())
}

fn check_items(items: usize) -> Result<()> {
    if items > LIST_ITEMS_MAX {
        return fail(format!("list longer than {LIST_ITEMS_MAX} items"));
    }
    Ok(())
}

/// A string that is Markup (came out of `safe` or `escape`) if `model` is.
pub fn text_like(model: &Value, text: String) -> Value {
    if model.is_safe() {
        Value::from_safe_string(text)
    } else {
        Value::from(text)
    }
}

/// Python's markupsafe.escape: Markup stays, other strings are escaped for HTML and become Markup.
/// It is off for output, but Markup escapes what is added to it, and published templates depend on
/// that.
pub fn escaped(value: &Value) -> Value {
    match value.as_str() {
        Some(text) if !value.is_safe() => Value::from_safe_string(escape_html(text)),
        _ => value.clone(),
    }
}

/// HTML escapes, marks kept.
pub fn escape_html(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        let name = match color::plain_char(c) {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' => "&#34;",
            '\'' => "&#39;",
            _ => {
                out.push(c);
                continue;
            }
        };
        out.extend(name.chars().map(|e| color::paint_like(c, e)));
    }
    out
}

/// `+`.
pub fn add(a: &Value, b: &Value) -> Result<Value> {
    if a.is_safe() != b.is_safe() && a.as_str().is_some() && b.as_str().is_some() {
        return add(&escaped(a), &escaped(b));
    }
    if let (Some(x), Some(y)) = (a.as_str(), b.as_str()) {
        check_len(x.len() + y.len())?;
        return Ok(text_like(a, [x, y].concat()));
    }
    if let (Some(x), Some(y)) = (as_list(a), as_list(b)) {
        if x.kind == y.kind && matches!(x.kind, Kind::List | Kind::Tuple) {
            check_items(x.items.len() + y.items.len())?;
            return sequence([x.items.as_slice(), y.items.as_slice()].concat(), x.kind);
        }
    }
    if a.as_str().is_some() && !b.is_undefined() {
        return fail(format!("can only concatenate str (not \"{}\") to str", type_name(b)));
    }
    arith(a, "+", b)
}

pub fn arith(a: &Value, op: &str, b: &Value) -> Result<Value> {
    if op == "%" && a.as_str().is_some() {
        return crate::format::percent(a, b);
    }
    if op == "*" {
        if let Some(repeated) = repeat(a, b).or_else(|| repeat(b, a)) {
            return repeated;
        }
    }
    match (Num::of(a), Num::of(b)) {
        (Some(Num::Int(x)), Some(Num::Int(y))) => int_arith(x, op, y),
        (Some(x), Some(y)) => float_arith(x.as_f64(), op, y.as_f64()),
        _ => unsupported(op, a, b),
    }
}

fn repeat(what: &Value, count: &Value) -> Option<Result<Value>> {
    let Some(Num::Int(count)) = Num::of(count) else { return None };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = what.as_str() {
        let total = text.len().saturating_mul(count);
        return Some(check_len(total).map(|()| text_like(what, text.repeat(count))));
    }
    let items = as_list(what).filter(|l| matches!(l.kind, Kind::List | Kind::Tuple))?;
    let total = items.items.len().saturating_mul(count);
    Some(check_items(total).and_then(|()| {
        sequence(items.items.iter().cycle().take(total).cloned().collect(), items.kind)
    }))
}

fn int_arith(x: i128, op: &str, y: i128) -> Result<Value> {
    if y == 0 && matches!(op, "/" | "//" | "%") {
        return fail("division by zero");
    }
    let result = match op {
        "+" => x.checked_add(y),
        "-" => x.checked_sub(y),
        "*" => x.checked_mul(y),
        "/" => return Ok(Value::from(x as f64 / y as f64)),
        "//" => x.checked_div(y).map(|q| if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q }),
        "%" => x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r }),
        "**" if y < 0 => return float_arith(x as f64, op, y as f64),
        "**" => u32::try_from(y).ok().and_then(|y| x.checked_pow(y)),
        _ => None,
    };
    match result {
        Some(value) => Ok(int_value(value)),
        None => fail(format!("integer overflow in '{op}'")),
    }
}

fn float_arith(x: f64, op: &str, y: f64) -> Result<Value> {
    if y == 0.0 && matches!(op, "/" | "//" | "%") {
        return fail("float division by zero");
    }
    Ok(Value::from(match op {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        "/" => x / y,
        "//" => (x / y).floor(),
        "%" => {
            let r = x % y;
            if r != 0.0 && (r < 0.0) != (y < 0.0) {
                r + y
            } else {
                r
            }
        }
        _ => x.powf(y),
    }))
}

pub fn sign(op: &str, value: &Value) -> Result<Value> {
    match Num::of(value) {
        Some(Num::Int(i)) if op == "-" => Ok(int_value(i.wrapping_neg())),
        Some(Num::Float(f)) if op == "-" => Ok(Value::from(-f)),
        Some(Num::Int(i)) => Ok(int_value(i)),
        Some(Num::Float(f)) => Ok(Value::from(f)),
        None => fail(format!("bad operand type for unary {op}: '{}'", type_name(value))),
    }
}

/// `~`: the text of every operand.
pub fn concat(values: &[Value]) -> Result<Value> {
    let mut out = String::new();
    for value in values {
        py_str(value, &mut out)?;
        check_len(out.len())?;
    }
    Ok(Value::from(out))
}

pub fn eq(a: &Value, b: &Value) -> bool {
    if let (Some(x), Some(y)) = (a.as_str(), b.as_str()) {
        return x == y || color::plain(x) == color::plain(y);
    }
    if let (Some(x), Some(y)) = (Num::of(a), Num::of(b)) {
        return match (x, y) {
            (Num::Int(x), Num::Int(y)) => x == y,
            _ => x.as_f64() == y.as_f64(),
        };
    }
    if let (Some(x), Some(y)) = (as_list(a), as_list(b)) {
        return x.kind == y.kind
            && x.items.len() == y.items.len()
            && x.items.iter().zip(&y.items).all(|(x, y)| eq(x, y));
    }
    if let (Some(x), Some(y)) = (as_dict(a), as_dict(b)) {
        return x.map.len() == y.map.len()
            && x.map.iter().all(|(k, v)| y.get(k).is_some_and(|w| eq(v, w)));
    }
    match (a.kind(), b.kind()) {
        (ValueKind::None, ValueKind::None) | (ValueKind::Undefined, ValueKind::Undefined) => true,
        (ValueKind::Plain | ValueKind::Map, ValueKind::Plain | ValueKind::Map) => a == b,
        _ => false,
    }
}

/// Python's order of strings, numbers and sequences; an error between different types.
pub fn order(a: &Value, b: &Value, op: &str) -> Result<Option<Ordering>> {
    if let (Some(x), Some(y)) = (a.as_str(), b.as_str()) {
        return Ok(Some(color::plain(x).cmp(&color::plain(y))));
    }
    if let (Some(x), Some(y)) = (Num::of(a), Num::of(b)) {
        return Ok(match (x, y) {
            (Num::Int(x), Num::Int(y)) => Some(x.cmp(&y)),
            _ => x.as_f64().partial_cmp(&y.as_f64()),
        });
    }
    if let (Some(x), Some(y)) = (as_list(a), as_list(b)) {
        if x.kind == y.kind {
            for (x, y) in x.items.iter().zip(&y.items) {
                if !eq(x, y) {
                    return order(x, y, op);
                }
            }
            return Ok(Some(x.items.len().cmp(&y.items.len())));
        }
    }
    if a.is_undefined() || b.is_undefined() {
        return unsupported(op, a, b);
    }
    fail(format!(
        "'{op}' not supported between instances of '{}' and '{}'",
        type_name(a),
        type_name(b)
    ))
}

pub fn contains(container: &Value, value: &Value) -> Result<bool> {
    if let Some(text) = container.as_str() {
        return match value.as_str() {
            Some(part) => Ok(color::plain(text).contains(&*color::plain(part))),
            None => fail(format!(
                "'in <string>' requires string as left operand, not {}",
                type_name(value)
            )),
        };
    }
    if let Some(dict) = as_dict(container) {
        return Ok(dict.get(value).is_some());
    }
    match container.kind() {
        ValueKind::Undefined => Ok(false),
        ValueKind::Seq | ValueKind::Iterable => {
            Ok(to_vec(container)?.iter().any(|item| eq(item, value)))
        }
        _ => fail(format!("argument of type '{}' is not iterable", type_name(container))),
    }
}

pub fn compare(a: &Value, op: &str, b: &Value) -> Result<bool> {
    let order = |op| order(a, b, op);
    Ok(match op {
        "==" => eq(a, b),
        "!=" => !eq(a, b),
        "in" => contains(b, a)?,
        "not in" => !contains(b, a)?,
        "<" => order(op)? == Some(Ordering::Less),
        ">" => order(op)? == Some(Ordering::Greater),
        "<=" => order(op)?.is_some_and(Ordering::is_le),
        _ => order(op)?.is_some_and(Ordering::is_ge),
    })
}

/// `a < b == c`: operands with the operators between them.
pub fn compare_chain(args: &[Value]) -> Result<bool> {
    for pair in args.windows(3).step_by(2) {
        if !compare(&pair[0], pair[1].as_str().unwrap_or(""), &pair[2])? {
            return Ok(false);
        }
    }
    Ok(true)
}

const SLICE_INDICES: &str = "slice indices must be integers or None";

// The positions Python's slice visits; None for indices that are no integers.
fn slice_positions(len: usize, start: &Value, stop: &Value, step: &Value) -> Option<Vec<usize>> {
    let get = |value: &Value| match Num::of(value) {
        Some(Num::Int(i)) => Some(Some(i)),
        None if value.is_none() => Some(None),
        _ => None,
    };
    let (start, stop, step) = (get(start)?, get(stop)?, get(step)?.unwrap_or(1));
    let len = len as i128;
    if step == 0 {
        return None;
    }
    let clamp = |i: i128, low: i128, high: i128| {
        if i < 0 {
            (i.saturating_add(len)).max(low)
        } else {
            i.min(high)
        }
    };
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let mut at = start.map_or(if step > 0 { low } else { high }, |i| clamp(i, low, high));
    let stop = stop.map_or(if step > 0 { high } else { low }, |i| clamp(i, low, high));
    let mut out = Vec::new();
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        out.push(at as usize);
        at = at.saturating_add(step);
    }
    Some(out)
}

/// `value[start:stop:step]`.
pub fn slice(value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if matches!(Num::of(step), Some(Num::Int(0))) {
        return fail("slice step cannot be zero");
    }
    if let Some(text) = value.as_str() {
        let chars: Vec<char> = text.chars().collect();
        let positions = slice_positions(chars.len(), start, stop, step);
        return match positions {
            Some(p) => Ok(text_like(value, p.iter().map(|i| chars[*i]).collect())),
            None => fail(SLICE_INDICES),
        };
    }
    match as_list(value) {
        Some(seq) if matches!(seq.kind, Kind::List | Kind::Tuple) => {
            match slice_positions(seq.items.len(), start, stop, step) {
                Some(p) => sequence(p.iter().map(|i| seq.items[*i].clone()).collect(), seq.kind),
                None => fail(SLICE_INDICES),
            }
        }
        _ => fail(format!("'{}' object cannot be sliced", type_name(value))),
    }
}

/// The characters of a string, each with its mark.
pub fn chars(text: &str) -> Result<Value> {
    list(text.chars().map(|c| Value::from(c.to_string())).collect())
}

/// Byte ranges (in the plain form) of non-overlapping occurrences, at most `most`.
pub fn find_all(text: &Text, what: &str, most: usize) -> Vec<(usize, usize)> {
    let what = color::plain(what);
    text.plain()
        .match_indices(&*what)
        .take(most)
        .map(|(at, found)| (at, at + found.len()))
        .collect()
}
