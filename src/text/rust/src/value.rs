//! Python's lists, tuples, dicts, generators and bound methods as minijinja objects.
//!
//! Everything a template builds is one of these, which lets us keep Python's behaviour where
//! minijinja's differs and bound the nesting (dropping a million nested lists would overflow the
//! stack).

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use indexmap::IndexMap;
use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use crate::color;

pub const NESTING_MAX: u32 = 256;

pub type Result<T> = std::result::Result<T, Error>;

pub fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidOperation, message.into()))
}

/// How a sequence behaves; all four iterate alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    List,
    Tuple,
    Group,              // a tuple whose parts are also named grouper and list
    View(&'static str), // dict.items() and friends: a length, no subscripts
    Generator,          // what map, select and reject give: read once, always true
}

#[derive(Debug)]
pub struct PyList {
    pub items: Vec<Value>,
    pub kind: Kind,
    depth: u32,
    taken: AtomicUsize,
}

impl PyList {
    /// The items not yet consumed; consumes them if this is a generator.
    pub fn take(&self) -> &[Value] {
        match self.kind {
            Kind::Generator => &self.items[self.taken.swap(self.items.len(), Ordering::Relaxed)..],
            _ => &self.items,
        }
    }

    /// The next item of a generator, the first of anything else.
    pub fn next(&self) -> Option<Value> {
        match self.kind {
            Kind::Generator => {
                let at = self.taken.load(Ordering::Relaxed);
                self.taken.store((at + 1).min(self.items.len()), Ordering::Relaxed);
                self.items.get(at).cloned()
            }
            _ => self.items.first().cloned(),
        }
    }

    pub fn has_len(&self) -> bool {
        self.kind != Kind::Generator
    }
}

impl Object for PyList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match self.kind {
            Kind::Group if key.as_str() == Some("grouper") => self.items.first().cloned(),
            Kind::Group if key.as_str() == Some("list") => self.items.get(1).cloned(),
            Kind::List | Kind::Tuple | Kind::Group => self.items.get(key.as_usize()?).cloned(),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.take().to_vec())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(match self.kind {
            Kind::Generator => self.items.len() - self.taken.load(Ordering::Relaxed),
            _ => self.items.len(),
        })
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.kind == Kind::Generator || !self.items.is_empty()
    }
}

#[derive(Debug)]
pub struct PyDict {
    pub map: IndexMap<Value, Value>,
    depth: u32,
    marked_keys: bool,
}

impl PyDict {
    /// Finds a key as Python would; marks on either side do not matter.
    pub fn get(&self, key: &Value) -> Option<&Value> {
        if let Some(found) = self.map.get(key) {
            return Some(found);
        }
        let text = key.as_str()?;
        if !self.marked_keys && !color::may_be_painted(text) {
            return None;
        }
        let want = color::plain(text);
        self.map
            .iter()
            .find(|(k, _)| k.as_str().is_some_and(|k| color::plain(k) == want))
            .map(|(_, v)| v)
    }
}

impl Object for PyDict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get(key).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.map.keys().cloned().collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.map.len())
    }
}

/// `value.method` without a call.
pub struct Method {
    pub value: Value,
    pub name: String,
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<built-in method {} of {} object>", self.name, type_name(&self.value))
    }
}

impl Object for Method {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _state: &State<'_, '_>, args: &[Value]) -> Result<Value> {
        crate::methods::call(&self.value, &self.name, args)
    }
}

// How deep a value nests; objects of minijinja itself (namespaces, loops, macros) may not be stored
// inside others, since chains of them could not be bounded.
fn nesting(value: &Value) -> Result<u32> {
    if let Some(list) = value.downcast_object_ref::<PyList>() {
        return Ok(list.depth);
    }
    if let Some(dict) = value.downcast_object_ref::<PyDict>() {
        return Ok(dict.depth);
    }
    match value.as_object() {
        Some(_) => fail("namespaces, loops, macros and methods cannot be stored in a list or dict"),
        None => Ok(0),
    }
}

fn depth_above<'a>(values: impl Iterator<Item = &'a Value>) -> Result<u32> {
    let mut depth = 0;
    for value in values {
        depth = depth.max(nesting(value)?);
    }
    if depth >= NESTING_MAX {
        return fail("lists and dicts nested too deeply");
    }
    Ok(depth + 1)
}

pub fn sequence(items: Vec<Value>, kind: Kind) -> Result<Value> {
    let depth = depth_above(items.iter())?;
    Ok(Value::from_object(PyList { items, kind, depth, taken: AtomicUsize::new(0) }))
}

pub fn list(items: Vec<Value>) -> Result<Value> {
    sequence(items, Kind::List)
}

pub fn dict(map: IndexMap<Value, Value>) -> Result<Value> {
    let depth = depth_above(map.values())?;
    let marked_keys = map.keys().any(|k| k.as_str().is_some_and(color::may_be_painted));
    Ok(Value::from_object(PyDict { map, depth, marked_keys }))
}

pub fn as_list(value: &Value) -> Option<&PyList> {
    value.downcast_object_ref::<PyList>()
}

pub fn as_dict(value: &Value) -> Option<&PyDict> {
    value.downcast_object_ref::<PyDict>()
}

/// The values a `for` would visit; None and numbers are errors as in Python.
pub fn to_vec(value: &Value) -> Result<Vec<Value>> {
    if let Some(list) = as_list(value) {
        return Ok(list.take().to_vec());
    }
    match value.kind() {
        ValueKind::Undefined => Ok(Vec::new()),
        ValueKind::String | ValueKind::Map | ValueKind::Seq | ValueKind::Iterable => {
            Ok(value.try_iter()?.collect())
        }
        _ => fail(format!("'{}' object is not iterable", type_name(value))),
    }
}

pub fn type_name(value: &Value) -> &'static str {
    if let Some(list) = as_list(value) {
        return match list.kind {
            Kind::List => "list",
            Kind::Tuple | Kind::Group => "tuple",
            Kind::View(name) => name,
            Kind::Generator => "generator",
        };
    }
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Map if as_dict(value).is_some() => "dict",
        _ => "object",
    }
}

/// Puts a pair into a dict under construction; keys are equal as in Python (1 == True, marks ignored).
pub fn insert(map: &mut IndexMap<Value, Value>, key: Value, value: Value) {
    match map.keys().position(|other| crate::ops::eq(other, &key)) {
        Some(at) => map[at] = value,
        None => {
            map.insert(key, value);
        }
    }
}

/// `value[key]` and the attribute paths of filters: items first, then Python's methods.
pub fn item(value: &Value, key: &Value) -> Result<Value> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let found = value.get_item(key).unwrap_or(Value::UNDEFINED);
    match key.as_str().map(color::plain) {
        Some(name) if found.is_undefined() => {
            Ok(bound_method(value, &name).unwrap_or(Value::UNDEFINED))
        }
        _ => Ok(found),
    }
}

/// `value.name`: Python's methods first, then items.
pub fn attribute(value: &Value, name: &str) -> Result<Value> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    match bound_method(value, name) {
        Some(method) => Ok(method),
        None => Ok(value.get_attr(name).unwrap_or(Value::UNDEFINED)),
    }
}

fn bound_method(value: &Value, name: &str) -> Option<Value> {
    if !crate::methods::has_method(value, name) {
        return None;
    }
    Some(Value::from_object(Method { value: value.clone(), name: name.to_string() }))
}

/// Arguments of a call, positional and by keyword, taken by Python's rules.
pub struct Args<'a> {
    function: &'a str,
    positional: Vec<Value>,
    keywords: Vec<(String, Value)>,
}

impl<'a> Args<'a> {
    pub fn new(function: &'a str, args: &[Value]) -> Result<Self> {
        let mut keywords = Vec::new();
        let mut positional = args.to_vec();
        if positional.last().is_some_and(Value::is_kwargs) {
            if let Some(last) = positional.pop() {
                for key in last.try_iter()? {
                    let value = last.get_item(&key)?;
                    keywords.push((key.as_str().unwrap_or_default().to_string(), value));
                }
            }
        }
        Ok(Args { function, positional, keywords })
    }

    /// Binds the parameters in order; missing ones are None.
    pub fn bind<const N: usize>(mut self, names: [&str; N]) -> Result<[Option<Value>; N]> {
        if self.positional.len() > N {
            return fail(format!(
                "{}() takes at most {N} arguments ({} given)",
                self.function,
                self.positional.len()
            ));
        }
        let mut bound: [Option<Value>; N] =
            std::array::from_fn(|i| self.positional.get(i).cloned());
        for (key, value) in self.keywords.drain(..) {
            match names.iter().position(|name| *name == key) {
                Some(i) if bound[i].is_none() => bound[i] = Some(value),
                Some(_) => {
                    return fail(format!(
                        "{}() got multiple values for argument '{key}'",
                        self.function
                    ))
                }
                None => {
                    return fail(format!(
                        "{}() got an unexpected keyword argument '{key}'",
                        self.function
                    ))
                }
            }
        }
        Ok(bound)
    }

    pub fn into_parts(self) -> (Vec<Value>, Vec<(String, Value)>) {
        (self.positional, self.keywords)
    }
}

pub fn want_str(value: &Value, what: &str) -> Result<String> {
    match value.as_str() {
        Some(text) => Ok(text.to_string()),
        None => fail(format!("{what} must be str, not {}", type_name(value))),
    }
}

pub fn want_int(value: &Value, what: &str) -> Result<i64> {
    match value.kind() {
        ValueKind::Bool => Ok(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i64::try_from(value.clone()),
        _ => fail(format!("{what} must be int, not {}", type_name(value))),
    }
}

/// An optional integer argument; absent and None give the default.
pub fn int_or(value: &Option<Value>, default: i64, what: &str) -> Result<i64> {
    match value {
        Some(value) if !value.is_none() => want_int(value, what),
        _ => Ok(default),
    }
}

pub fn is_set(value: &Option<Value>) -> bool {
    value.as_ref().is_some_and(Value::is_true)
}
