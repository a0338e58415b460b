//! Jinja's tests (`is ...`) with Python's meaning.

use minijinja::value::ValueKind;
use minijinja::Value;

use crate::color;
use crate::methods::change_case;
use crate::ops::{compare, Num};
use crate::value::{as_dict, as_list, fail, Kind, Result};

/// Every test there is; the translator names others as unknown.
pub const NAMES: [&str; 34] = [
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
    "not in",
];

/// Whether args[0] passes the test `name`.
pub fn call(name: &str, args: &[Value]) -> Result<bool> {
    let Some((value, rest)) = args.split_first() else { return fail("a test needs a value") };
    let operator = match name {
        "eq" | "equalto" | "==" => "==",
        "ne" | "!=" => "!=",
        "lt" | "lessthan" | "<" => "<",
        "le" | "<=" => "<=",
        "gt" | "greaterthan" | ">" => ">",
        "ge" | ">=" => ">=",
        "in" => "in",
        "sameas" | "divisibleby" => name,
        _ if !rest.is_empty() => return fail(format!("test '{name}' takes no argument")),
        _ => return about(name, value),
    };
    let [other] = rest else { return fail(format!("test '{name}' takes one argument")) };
    match operator {
        "sameas" => Ok(same(value, other)),
        "divisibleby" => {
            Ok(crate::ops::eq(&crate::ops::arith(value, "%", other)?, &Value::from(0)))
        }
        _ => compare(value, operator, other),
    }
}

// Identity: singletons, the same object, and values of one type that Python would share or cannot
// tell apart.
fn same(a: &Value, b: &Value) -> bool {
    if let (Some(x), Some(y)) = (as_list(a), as_list(b)) {
        return std::ptr::eq(x, y);
    }
    if let (Some(x), Some(y)) = (as_dict(a), as_dict(b)) {
        return std::ptr::eq(x, y);
    }
    a.kind() == b.kind() && a.is_integer() == b.is_integer() && crate::ops::eq(a, b)
}

fn about(name: &str, value: &Value) -> Result<bool> {
    let kind = value.kind();
    let number = Num::of(value);
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => value.is_none(),
        "boolean" => kind == ValueKind::Bool,
        "true" => kind == ValueKind::Bool && value.is_true(),
        "false" => kind == ValueKind::Bool && !value.is_true(),
        "integer" => kind == ValueKind::Number && value.is_integer(),
        "float" => kind == ValueKind::Number && !value.is_integer(),
        "number" => number.is_some(),
        "string" => value.as_str().is_some(),
        "mapping" => as_dict(value).is_some(),
        "iterable" => {
            value.as_str().is_some()
                || value.is_undefined()
                || as_list(value).is_some()
                || as_dict(value).is_some()
        }
        "sequence" => {
            let seq = as_list(value)
                .is_some_and(|l| matches!(l.kind, Kind::List | Kind::Tuple | Kind::Group));
            seq || value.as_str().is_some() || as_dict(value).is_some() || value.is_undefined()
        }
        "callable" => {
            value.as_object().is_some() && as_list(value).is_none() && as_dict(value).is_none()
        }
        "lower" | "upper" => {
            let text = crate::repr::to_text(value)?;
            let text = color::plain(&text);
            let cased = text.chars().any(|c| c.is_uppercase() || c.is_lowercase());
            cased && change_case(&text, name) == *text
        }
        "odd" | "even" => {
            let rest = crate::ops::arith(value, "%", &Value::from(2))?;
            crate::ops::eq(&rest, &Value::from(i64::from(name == "odd")))
        }
        "escaped" => value.is_safe(),
        "filter" => {
            value.as_str().is_some_and(|n| crate::filters::NAMES.contains(&&*color::plain(n)))
        }
        "test" => value.as_str().is_some_and(|n| NAMES.contains(&&*color::plain(n))),
        _ => return fail(format!("no test named '{name}'")),
    })
}
