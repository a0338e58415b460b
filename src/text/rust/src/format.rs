//! Python's two ways to format: `"%s" % x` and `"{}".format(x)`.

use minijinja::Value;

use crate::color;
use crate::ops::{check_len, escaped, text_like, Num};
use crate::repr::{float_repr, py_repr, to_text};
use crate::value::{as_dict, as_list, fail, type_name, Args, Kind, Result};

#[derive(Default, Clone)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    width: usize,
    comma: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

const WIDTH_MAX: usize = 1 << 16;

fn repr(value: &Value) -> Result<String> {
    let mut out = String::new();
    py_repr(value, &mut out)?;
    Ok(out)
}

// The arguments of `%`: a tuple's items, or the one value; a dict serves by name.
struct Operands<'a> {
    items: Vec<Value>,
    used: usize,
    named: bool,
    whole: &'a Value,
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

impl Operands<'_> {
    fn next(&mut self) -> Result<Value> {
        self.used += 1;
        match self.items.get(self.used - 1) {
            Some(value) => Ok(value.clone()),
            None => fail("not enough arguments for format string"),
        }
    }

    fn by_name(&mut self, chars: &mut Chars) -> Result<Option<Value>> {
        if chars.next_if_eq(&'(').is_none() {
            return Ok(None);
        }
        self.named = true;
        let key: String = chars.by_ref().take_while(|c| *c != ')').collect();
        match as_dict(self.whole).and_then(|map| map.get(&Value::from(key.as_str()))) {
            Some(found) => Ok(Some(found.clone())),
            None => fail(format!("format string names '{key}', which is not there")),
        }
    }

    // A width or precision: digits, or `*` for the next argument.
    fn number(&mut self, chars: &mut Chars) -> Result<usize> {
        if chars.next_if_eq(&'*').is_some() {
            let value = crate::value::want_int(&self.next()?, "width")?;
            return Ok(value.clamp(0, WIDTH_MAX as i64) as usize);
        }
        Ok(digits(chars).unwrap_or(0))
    }

    fn all_used(&self) -> bool {
        // Python asks only tuples and scalars to be used up: what has subscripts may serve by name.
        let by_name = as_dict(self.whole).is_some() || self.whole.is_undefined();
        let listed = as_list(self.whole).is_some_and(|seq| seq.kind == Kind::List);
        self.used >= self.items.len() || self.named || by_name || listed
    }
}

// A format string out of the conversation: all that it gives counts as the conversation's text.
fn repaint(formatted: Value) -> Result<Value> {
    let text = color::plain(formatted.as_str().unwrap_or_default());
    Ok(text_like(&formatted, color::paint(&text)))
}

/// `text % args`.
pub fn percent(text: &Value, args: &Value) -> Result<Value> {
    if let Some(marked) = text.as_str().filter(|raw| color::may_be_painted(raw)) {
        return repaint(percent(&text_like(text, color::plain(marked).into_owned()), args)?);
    }
    let mut items = match as_list(args) {
        Some(tuple) if tuple.kind == Kind::Tuple => tuple.items.clone(),
        _ => vec![args.clone()],
    };
    if text.is_safe() {
        items = items.iter().map(escaped).collect();
    }
    let mut operands = Operands { items, used: 0, named: false, whole: args };
    let mut out = String::new();
    let mut chars = text.as_str().unwrap_or_default().chars().peekable();
    while let Some(c) = chars.next() {
        if c == '%' {
            percent_field(&mut chars, &mut operands, &mut out)?;
        } else {
            out.push(c);
        }
        check_len(out.len())?;
    }
    if !operands.all_used() {
        return fail("not all arguments converted during string formatting");
    }
    Ok(text_like(text, out))
}

// One field, the `%` already read.
fn percent_field(chars: &mut Chars, operands: &mut Operands, out: &mut String) -> Result<()> {
    let named = operands.by_name(chars)?;
    let mut spec = Spec { align: Some('>'), ..Spec::default() };
    while let Some(flag) = chars.next_if(|c| "-+ #0".contains(*c)) {
        match flag {
            '-' => spec.align = Some('<'),
            '0' => spec.fill = Some('0'),
            '#' => spec.alternate = true,
            _ if spec.sign == Some('+') => {}
            _ => spec.sign = Some(flag),
        }
    }
    spec.width = operands.number(chars)?;
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = Some(operands.number(chars)?);
    }
    match chars.next() {
        None => fail("incomplete format"),
        Some('%') => {
            out.push('%');
            Ok(())
        }
        Some(kind) => {
            let value = named.map_or_else(|| operands.next(), Ok)?;
            out.push_str(&percent_one(&value, kind, spec)?);
            Ok(())
        }
    }
}

fn digits(chars: &mut Chars) -> Option<usize> {
    let mut value: Option<usize> = None;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        chars.next();
        value = Some((value.unwrap_or(0) * 10 + digit as usize).min(WIDTH_MAX));
    }
    value
}

fn percent_one(value: &Value, kind: char, mut spec: Spec) -> Result<String> {
    if spec.align == Some('<') {
        spec.fill = None;
    }
    if spec.fill == Some('0') {
        spec.align = Some('=');
    }
    match kind {
        's' | 'r' | 'a' => {
            let text = if kind == 's' { to_text(value)? } else { repr(value)? };
            let cut = spec.precision.map_or(text.clone(), |n| text.chars().take(n).collect());
            spec.fill = None;
            if spec.align == Some('=') {
                spec.align = Some('>');
            }
            Ok(aligned("", &cut, &spec, '>'))
        }
        'c' if value.as_str().is_some() => {
            Ok(aligned("", value.as_str().unwrap_or_default(), &spec, '>'))
        }
        'd' | 'i' | 'u' => match Num::of(value) {
            Some(number) => {
                let whole = match number {
                    Num::Int(i) => i,
                    Num::Float(f) => f.trunc() as i128,
                };
                Ok(number_text(Num::Int(whole), &Spec { kind: Some('d'), ..spec })?)
            }
            None => {
                fail(format!("%{kind} format: a real number is required, not {}", type_name(value)))
            }
        },
        'x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' => match Num::of(value) {
            Some(number) => number_text(number, &Spec { kind: Some(kind), ..spec }),
            None => fail(format!("%{kind} format: a number is required, not {}", type_name(value))),
        },
        _ => fail(format!("unsupported format character '{kind}'")),
    }
}

fn aligned(sign: &str, body: &str, spec: &Spec, default: char) -> String {
    let missing = spec.width.saturating_sub(sign.chars().count() + body.chars().count());
    let fill = |n: usize| spec.fill.unwrap_or(' ').to_string().repeat(n);
    match spec.align.unwrap_or(default) {
        '<' => format!("{sign}{body}{}", fill(missing)),
        '^' => format!("{}{sign}{body}{}", fill(missing / 2), fill(missing - missing / 2)),
        '=' => format!("{sign}{}{body}", fill(missing)),
        _ => format!("{}{sign}{body}", fill(missing)),
    }
}

fn grouped(digits: &str, comma: Option<char>) -> String {
    let Some(comma) = comma else { return digits.to_string() };
    let (whole, rest) = match digits.find(['.', 'e']) {
        Some(at) => digits.split_at(at),
        None => (digits, ""),
    };
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(comma);
        }
        out.push(c);
    }
    out + rest
}

fn exponent_form(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn general_form(value: f64, precision: usize, alternate: bool) -> String {
    let precision = precision.max(1);
    let exponent: i32 = format!("{value:.*e}", precision - 1)
        .split_once('e')
        .and_then(|(_, e)| e.parse().ok())
        .unwrap_or(0);
    let trim = |text: String| match text.contains('.') && !alternate {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    };
    if exponent < -4 || exponent >= precision as i32 {
        let text = exponent_form(value, precision - 1);
        let (digits, rest) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{rest}", trim(digits.to_string()));
    }
    trim(format!("{value:.*}", (precision as i32 - 1 - exponent).max(0) as usize))
}

fn number_text(number: Num, spec: &Spec) -> Result<String> {
    let kind = spec.kind;
    let (negative, body) = match (number, kind) {
        (Num::Int(i), None | Some('d' | 'n')) => (i < 0, i.unsigned_abs().to_string()),
        (Num::Int(i), Some('x')) => {
            (i < 0, format!("{}{:x}", if spec.alternate { "0x" } else { "" }, i.unsigned_abs()))
        }
        (Num::Int(i), Some('X')) => {
            (i < 0, format!("{}{:X}", if spec.alternate { "0X" } else { "" }, i.unsigned_abs()))
        }
        (Num::Int(i), Some('o')) => {
            (i < 0, format!("{}{:o}", if spec.alternate { "0o" } else { "" }, i.unsigned_abs()))
        }
        (Num::Int(i), Some('b')) => {
            (i < 0, format!("{}{:b}", if spec.alternate { "0b" } else { "" }, i.unsigned_abs()))
        }
        (_, Some('x' | 'X' | 'o' | 'b' | 'd')) => {
            return fail("an integer is required by the format")
        }
        _ => {
            let value = number.as_f64();
            let (size, precision) = (value.abs(), spec.precision.unwrap_or(6));
            let text = match kind {
                None if spec.precision.is_none() => float_repr(size),
                Some('e' | 'E') => exponent_form(size, precision),
                None | Some('g' | 'G') => general_form(size, precision, spec.alternate),
                Some('%') => format!("{:.precision$}%", size * 100.0),
                _ => format!("{size:.precision$}"),
            };
            (
                value.is_sign_negative(),
                if matches!(kind, Some('E' | 'G')) { text.to_uppercase() } else { text },
            )
        }
    };
    let sign = if negative {
        "-"
    } else {
        spec.sign.map_or("", |s| {
            if s == '+' {
                "+"
            } else if s == ' ' {
                " "
            } else {
                ""
            }
        })
    };
    Ok(aligned(sign, &grouped(&body, spec.comma), spec, '>'))
}

/// `text.format(*args, **kwargs)`.
pub fn str_format(text: &str, args: &[Value]) -> Result<Value> {
    let (positional, keywords) = Args::new("format", args)?.into_parts();
    format_with(text, &positional, &|key| {
        Ok(keywords.iter().find(|(name, _)| name == key).map(|(_, v)| v.clone()))
    })
}

/// Fields by number from `positional`, by name from `named`.
pub fn format_with(
    text: &str,
    positional: &[Value],
    named: &dyn Fn(&str) -> Result<Option<Value>>,
) -> Result<Value> {
    if color::may_be_painted(text) {
        return repaint(format_with(&color::plain(text), positional, named)?);
    }
    let mut out = String::new();
    let mut auto = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if (c == '{' || c == '}') && chars.next_if_eq(&c).is_some() {
            out.push(c);
        } else if c == '}' {
            return fail("Single '}' encountered in format string");
        } else if c != '{' {
            out.push(c);
        } else {
            let mut field = String::new();
            let mut depth = 1;
            for c in chars.by_ref() {
                depth += i32::from(c == '{') - i32::from(c == '}');
                if depth == 0 {
                    break;
                }
                field.push(c);
            }
            if depth != 0 {
                return fail("expected '}' before end of string");
            }
            out.push_str(&format_field(&field, positional, named, &mut auto)?);
            check_len(out.len())?;
        }
    }
    Ok(Value::from(out))
}

fn format_field(
    field: &str,
    positional: &[Value],
    named: &dyn Fn(&str) -> Result<Option<Value>>,
    auto: &mut usize,
) -> Result<String> {
    let (path, spec) = field.split_once(':').unwrap_or((field, ""));
    let (path, conversion) = match path.split_once('!') {
        Some((path, conversion)) => (path, Some(conversion)),
        None => (path, None),
    };
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (first, mut rest) = path.split_at(end);
    let found = if first.is_empty() {
        *auto += 1;
        positional.get(*auto - 1).cloned()
    } else if let Ok(index) = first.parse::<usize>() {
        positional.get(index).cloned()
    } else {
        named(first)?
    };
    let Some(mut value) = found else {
        return fail(format!("format string names field '{first}', which is not given"));
    };
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (key, tail) = after.split_once(']').unwrap_or((after, ""));
            let key = key.parse::<i64>().map(Value::from).unwrap_or_else(|_| Value::from(key));
            value = crate::value::item(&value, &key)?;
            rest = tail;
        } else {
            let after = &rest[1..];
            let end = after.find(['.', '[']).unwrap_or(after.len());
            value = crate::value::attribute(&value, &after[..end])?;
            rest = &after[end..];
        }
    }
    let spec = match spec.contains('{') {
        true => to_text(&format_with(spec, &positional[(*auto).min(positional.len())..], named)?)?,
        false => spec.to_string(),
    };
    let spec = parse_spec(&spec)?;
    match conversion {
        Some("r" | "a") => Ok(format_text(&repr(&value)?, &spec)),
        Some("s") => Ok(format_text(&to_text(&value)?, &spec)),
        Some(other) => fail(format!("unknown conversion '!{other}'")),
        None => match Num::of(&value) {
            Some(number)
                if value.kind() != minijinja::value::ValueKind::Bool || spec.kind.is_some() =>
            {
                number_text(number, &spec)
            }
            _ => Ok(format_text(&to_text(&value)?, &spec)),
        },
    }
}

fn format_text(text: &str, spec: &Spec) -> String {
    match spec.precision {
        Some(n) => aligned("", &text.chars().take(n).collect::<String>(), spec, '<'),
        None => aligned("", text, spec, '<'),
    }
}

fn parse_spec(text: &str) -> Result<Spec> {
    let mut spec = Spec::default();
    let all: Vec<char> = text.chars().collect();
    let mut start = 0;
    if all.len() > 1 && "<>=^".contains(all[1]) {
        (spec.fill, spec.align, start) = (Some(all[0]), Some(all[1]), 2);
    } else if all.first().is_some_and(|c| "<>=^".contains(*c)) {
        (spec.align, start) = (Some(all[0]), 1);
    }
    let tail: String = all[start..].iter().collect();
    let mut chars = tail.chars().peekable();
    spec.sign = chars.next_if(|c| "+- ".contains(*c));
    spec.alternate = chars.next_if_eq(&'#').is_some();
    if chars.next_if_eq(&'0').is_some() && spec.align.is_none() {
        (spec.fill, spec.align) = (Some('0'), Some('='));
    }
    spec.width = digits(&mut chars).unwrap_or(0);
    spec.comma = chars.next_if(|c| *c == ',' || *c == '_');
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = digits(&mut chars);
    }
    spec.kind = chars.next().filter(|c| *c != 's');
    match chars.next() {
        Some(_) => fail(format!("invalid format specifier '{text}'")),
        None => Ok(spec),
    }
}
