//! One compiled template: minijinja set up with Python's functions, filters and tests, and limits
//! on what a hostile template may use up.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use minijinja::value::{Object, ObjectRepr, Rest};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use crate::ops::{check_len, STRING_BYTES_MAX};
use crate::repr::to_text;
use crate::value::{
    as_dict, as_list, dict, fail, list, sequence, want_int, want_str, Args, Kind, Result,
};
use crate::{checks, clock, color, filters, json, methods, ops, request, translate, value};

const FUEL: u64 = 20_000_000; // instructions; a thousand turns with tools take well under a million
const WORK_BYTES_MAX: i64 = 512 << 20; // all strings and lists a rendering makes, together
const NAMESPACES_MAX: i64 = 1000;
const RANGE_MAX: i128 = 100_000; // as transformers' sandbox
const RECURSION_MAX: usize = 300;

/// What went wrong, for the C ABI.
#[derive(Debug)]
pub struct Failure {
    pub kind: FailureKind,
    pub line: u32,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FailureKind {
    Syntax = 1,
    Raised = 2, // the template called raise_exception
    Runtime = 3,
    Input = 4, // the request itself
}

#[derive(Debug)]
struct Raised;

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("raised by the template")
    }
}

impl std::error::Error for Raised {}

// What one rendering may still use; reset before each.
struct Meter {
    now: AtomicI64,
    work_bytes: AtomicI64,
    namespaces: AtomicI64,
}

impl Meter {
    fn reset(&self, now: i64) {
        self.now.store(now, Ordering::Relaxed);
        self.work_bytes.store(WORK_BYTES_MAX, Ordering::Relaxed);
        self.namespaces.store(NAMESPACES_MAX, Ordering::Relaxed);
    }

    fn charge_bytes(&self, bytes: usize) -> Result<()> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.work_bytes.fetch_sub(bytes, Ordering::Relaxed) < bytes {
            return Err(Error::new(ErrorKind::OutOfFuel, "the template uses too much memory"));
        }
        Ok(())
    }

    fn charge(&self, value: Value) -> Result<Value> {
        let bytes = match (value.as_str(), as_list(&value), as_dict(&value)) {
            (Some(text), _, _) => text.len(),
            (_, Some(list), _) => 32 * list.items.len() + 64,
            (_, _, Some(map)) => 96 * map.map.len() + 64,
            _ => 0,
        };
        self.charge_bytes(bytes)?;
        Ok(value)
    }
}

pub struct Template {
    env: Environment<'static>,
    meter: Arc<Meter>,
}

type Builtin = fn(&[Value]) -> Result<Value>;

fn compare(args: &[Value]) -> Result<Value> {
    Ok(Value::from(ops::compare_chain(args)?))
}

fn test(args: &[Value]) -> Result<Value> {
    let (Some(value), Some(name)) = (args.first(), args.get(1).and_then(|n| n.as_str())) else {
        return fail("malformed test");
    };
    let rest = [&[value.clone()], &args[2..]].concat();
    Ok(Value::from(checks::call(name, &rest)?))
}

fn make_dict(args: &[Value]) -> Result<Value> {
    let mut map = IndexMap::new();
    for pair in args.chunks_exact(2) {
        value::insert(&mut map, pair[0].clone(), pair[1].clone());
    }
    dict(map)
}

// dict(mapping_or_pairs, key=value, ...).
fn dict_function(args: &[Value]) -> Result<Value> {
    let (positional, keywords) = Args::new("dict", args)?.into_parts();
    let mut map = IndexMap::new();
    if let Some(first) = positional.first() {
        match as_dict(first) {
            Some(other) => map = other.map.clone(),
            None => {
                for pair in value::to_vec(first)? {
                    let pair = value::to_vec(&pair)?;
                    let [key, item] = pair.as_slice() else { return fail("dict() takes pairs") };
                    value::insert(&mut map, key.clone(), item.clone());
                }
            }
        }
    }
    map.extend(keywords.into_iter().map(|(key, item)| (Value::from(key), item)));
    dict(map)
}

fn range(args: &[Value]) -> Result<Value> {
    let [a, b, step] = Args::new("range", args)?.bind(["start", "stop", "step"])?;
    let (start, stop) = match (a, b) {
        (Some(a), Some(b)) => {
            (want_int(&a, "range() argument")?, want_int(&b, "range() argument")?)
        }
        (Some(a), None) => (0, want_int(&a, "range() argument")?),
        _ => return fail("range expected at least 1 argument, got 0"),
    };
    let (start, stop, step) =
        (i128::from(start), i128::from(stop), i128::from(value::int_or(&step, 1, "range() step")?));
    if step == 0 {
        return fail("range() arg 3 must not be zero");
    }
    let span = if step > 0 { stop - start } else { start - stop };
    let count = (span.max(0) + step.abs() - 1) / step.abs();
    if count > RANGE_MAX {
        return fail(format!(
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({RANGE_MAX})."
        ));
    }
    list((0..count).map(|i| ops::int_value(start + i * step)).collect())
}

fn raise(args: &[Value]) -> Result<Value> {
    let [message] = Args::new("raise_exception", args)?.bind(["message"])?;
    let message = color::plain(&to_text(&message.unwrap_or(Value::UNDEFINED))?).into_owned();
    Err(Error::new(ErrorKind::InvalidOperation, message).with_source(Raised))
}

fn attr(args: &[Value]) -> Result<Value> {
    value::attribute(&args[0], args[1].as_str().unwrap_or_default())
}

const BUILTINS: [(&str, Builtin); 17] = [
    ("__py_value", |args| Ok(args[0].clone())),
    ("__py_add", |args| {
        args[1..].iter().try_fold(args[0].clone(), |sum, next| ops::add(&sum, next))
    }),
    ("__py_arith", |args| ops::arith(&args[0], args[1].as_str().unwrap_or(""), &args[2])),
    ("__py_sign", |args| ops::sign(args[0].as_str().unwrap_or(""), &args[1])),
    ("__py_concat", ops::concat),
    ("__py_compare", compare),
    ("__py_test", test),
    ("__py_attr", attr),
    ("__py_item", |args| value::item(&args[0], &args[1])),
    ("__py_slice", |args| ops::slice(&args[0], &args[1], &args[2], &args[3])),
    ("__py_list", |args| list(args.to_vec())),
    ("__py_tuple", |args| sequence(args.to_vec(), Kind::Tuple)),
    ("__py_dict", make_dict),
    ("__py_iter", |args| filters::iter(&args[0])),
    ("dict", dict_function),
    ("range", range),
    ("raise_exception", raise),
];

// The smallest argument counts of the functions above, since a template can call them by name, too.
fn arity(name: &str) -> usize {
    match name {
        "__py_slice" => 4,
        "__py_arith" => 3,
        "__py_add" | "__py_iter" | "__py_value" => 1,
        "__py_sign" | "__py_attr" | "__py_item" | "__py_test" => 2,
        _ => 0,
    }
}

fn add_functions(env: &mut Environment<'static>, meter: &Arc<Meter>) {
    for (name, function) in BUILTINS {
        let meter = meter.clone();
        env.add_function(name, move |args: Rest<Value>| {
            if args.len() < arity(name) {
                return fail(format!("{name}: too few arguments"));
            }
            meter.charge(function(&args)?)
        });
    }
    let charge = meter.clone();
    env.add_function("__py_call", move |state: &State, args: Rest<Value>| {
        let (Some(object), Some(name)) = (args.first(), args.get(1).and_then(|n| n.as_str()))
        else {
            return fail("malformed method call");
        };
        if object.is_undefined() {
            return Err(Error::new(
                ErrorKind::UndefinedError,
                format!("cannot call '{name}' of an undefined value"),
            ));
        }
        let foreign =
            object.as_object().is_some() && as_list(object).is_none() && as_dict(object).is_none();
        if foreign {
            return object.call_method(state, name, &args[2..]);
        }
        charge.charge(methods::call(object, name, &args[2..])?)
    });
    env.add_function("__py_fail", |message: String| -> Result<Value> { fail(message) });
    let clock = meter.clone();
    env.add_function("strftime_now", move |format: &Value| {
        let format = color::plain(&want_str(format, "strftime_now() argument")?).into_owned();
        Ok(Value::from(clock::strftime(&format, clock.now.load(Ordering::Relaxed))?))
    });
    let count = meter.clone();
    env.add_function("namespace", move |state: &State, args: Rest<Value>| {
        if count.namespaces.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return fail(format!("more than {NAMESPACES_MAX} namespaces"));
        }
        let (positional, keywords) = Args::new("namespace", &args)?.into_parts();
        let initial = dict_function(
            &[positional, vec![Value::from(minijinja::value::Kwargs::from_iter(keywords))]]
                .concat(),
        )?;
        let _ = state;
        minijinja::functions::namespace(Some(initial))
    });
    env.add_function("cycler", |args: Rest<Value>| -> Result<Value> {
        if args.is_empty() {
            return fail("at least one item has to be provided");
        }
        Ok(Value::from_object(Cycler { items: args.to_vec(), at: Mutex::new(0) }))
    });
    env.add_function("joiner", |separator: Option<String>| {
        Value::from_object(Joiner {
            separator: separator.unwrap_or(", ".into()),
            used: Mutex::new(false),
        })
    });
}

#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: Mutex<usize>,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = self.at.lock().map(|at| *at).unwrap_or(0);
        (key.as_str() == Some("current")).then(|| self.items[at].clone())
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &State<'_, '_>,
        method: &str,
        _args: &[Value],
    ) -> Result<Value> {
        let Ok(mut at) = self.at.lock() else { return Ok(Value::UNDEFINED) };
        let current = self.items[*at].clone();
        match method {
            "next" => *at = (*at + 1) % self.items.len(),
            "reset" => *at = 0,
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        }
        Ok(if method == "next" { current } else { Value::from(()) })
    }
}

#[derive(Debug)]
struct Joiner {
    separator: String,
    used: Mutex<bool>,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _state: &State<'_, '_>, _args: &[Value]) -> Result<Value> {
        let Ok(mut used) = self.used.lock() else { return Ok(Value::UNDEFINED) };
        let first = !std::mem::replace(&mut *used, true);
        Ok(Value::from(if first { "" } else { &self.separator }))
    }
}

fn failure(error: &Error) -> Failure {
    let mut kind = FailureKind::Runtime;
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    let mut line = error.line();
    let mut message = None;
    while let Some(inner) = cause {
        if inner.is::<Raised>() {
            kind = FailureKind::Raised;
        }
        if let Some(inner) = inner.downcast_ref::<Error>() {
            line = inner.line().or(line);
            message = inner.detail().map(String::from).or(message);
        }
        cause = inner.source();
    }
    let message = message.unwrap_or_else(|| match error.kind() {
        ErrorKind::UndefinedError => "access to a part of an undefined value".into(),
        ErrorKind::OutOfFuel => "the template runs too long".into(),
        other => other.to_string(),
    });
    Failure { kind, line: line.unwrap_or(0) as u32, message }
}

impl Template {
    pub fn compile(source: &str) -> std::result::Result<Template, Failure> {
        let canonical = translate::translate(source).map_err(|error| Failure {
            kind: FailureKind::Syntax,
            line: error.line,
            message: error.message,
        })?;
        let meter = Arc::new(Meter { now: 0.into(), work_bytes: 0.into(), namespaces: 0.into() });
        let mut env = Environment::empty();
        env.set_undefined_behavior(UndefinedBehavior::Lenient);
        env.set_keep_trailing_newline(true);
        env.set_fuel(Some(FUEL));
        env.set_recursion_limit(RECURSION_MAX);
        let charge = meter.clone();
        env.set_formatter(move |out, _state, value| {
            let text = to_text(value)?;
            charge.charge_bytes(text.len())?;
            out.write_str(&text)
                .map_err(|_| Error::new(ErrorKind::WriteFailure, "output larger than the limit"))
        });
        for name in filters::NAMES {
            let meter = meter.clone();
            env.add_filter(name, move |state: &State, args: Rest<Value>| {
                meter.charge(filters::call(state, name, &args)?)
            });
        }
        add_functions(&mut env, &meter);
        env.add_template_owned("chat", canonical)
            .map_err(|error| Failure { kind: FailureKind::Syntax, ..failure(&error) })?;
        Ok(Template { env, meter })
    }

    fn render_once(&self, context: Value) -> Result<String> {
        let mut out = Capped(Vec::new());
        self.env.get_template("chat")?.render_captured_to(context, &mut out)?;
        String::from_utf8(out.0)
            .map_err(|_| Error::new(ErrorKind::WriteFailure, "output is not UTF-8"))
    }

    /// The rendering; with `request.mark` the text still carries its marks.
    pub fn render(&self, request: &request::Request) -> std::result::Result<String, Failure> {
        let input = |message: String| Failure { kind: FailureKind::Input, line: 0, message };
        let mut first = None;
        for variant in request.variants().map_err(input)? {
            self.meter.reset(request.now);
            let context =
                request.context(&variant).map_err(|error| input(failure(&error).message))?;
            match self.render_once(context) {
                Ok(text) => return Ok(text),
                Err(error) => {
                    let found = failure(&error);
                    let raised = found.kind == FailureKind::Raised;
                    let first = first.get_or_insert(found);
                    if raised || first.kind == FailureKind::Raised {
                        break;
                    }
                }
            }
        }
        Err(first.unwrap_or_else(|| input("nothing to render".into())))
    }
}

// Output with a limit.
struct Capped(Vec<u8>);

impl std::io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if check_len(self.0.len() + bytes.len()).is_err() {
            return Err(std::io::Error::other(format!(
                "output larger than {STRING_BYTES_MAX} bytes"
            )));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// JSON of a request part; `what` names it in the error.
pub fn parse(text: &str, what: &str) -> std::result::Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{what}: not valid JSON: {error}"))
}

pub fn to_json_text(value: &serde_json::Value) -> Result<String> {
    to_text(&json::tojson(&[json::to_value(value, false)?])?)
}
