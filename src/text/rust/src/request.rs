//! What a rendering is made of, and the forms in which it is offered to the template.
//!
//! Tool call arguments that come as a JSON string (the wire form of chat APIs) become a mapping, so
//! that both forms render alike. If the template then fails other than by raise_exception, the
//! conversation is offered again with missing contents as empty strings, and with arguments as
//! strings: the two things that chat clients and templates disagree about.

use indexmap::IndexMap;
use minijinja::Value;
use serde_json::Value as Json;

use crate::engine::{parse, to_json_text};
use crate::json::to_value;
use crate::value::{dict, Result};

pub struct Request {
    pub messages: Json,
    pub tools: Json,
    pub extra: Json,
    pub specials: Json,
    pub add_generation_prompt: bool,
    pub mark: bool,
    pub now: i64,
}

fn parse_or(text: &str, what: &str, default: Json) -> std::result::Result<Json, String> {
    if text.trim().is_empty() {
        return Ok(default);
    }
    parse(text, what)
}

fn object_or_empty(text: &str, what: &str) -> std::result::Result<Json, String> {
    match parse_or(text, what, Json::Object(Default::default()))? {
        Json::Null => Ok(Json::Object(Default::default())),
        value @ Json::Object(_) => Ok(value),
        _ => Err(format!("{what}: not a JSON object")),
    }
}

impl Request {
    pub fn parse(
        messages: &str,
        tools: &str,
        extra: &str,
        specials: &str,
    ) -> std::result::Result<Request, String> {
        Ok(Request {
            messages: parse(messages, "messages")?,
            tools: parse_or(tools, "tools", Json::Null)?,
            extra: object_or_empty(extra, "template variables")?,
            specials: object_or_empty(specials, "special tokens")?,
            add_generation_prompt: false,
            mark: false,
            now: 0,
        })
    }

    /// The conversation as it is tried, best form first.
    pub fn variants(&self) -> std::result::Result<Vec<Json>, String> {
        let mut mapped = self.messages.clone();
        each_arguments(&mut mapped, &mut |arguments, name, place| {
            let Json::String(text) = &*arguments else { return Ok(()) };
            let parsed = if text.trim().is_empty() {
                Ok(Json::Object(Default::default()))
            } else {
                parse(text, "arguments")
            };
            match parsed {
                Ok(value @ Json::Object(_)) => *arguments = value,
                Ok(_) => {
                    return Err(format!(
                        "tool call '{name}' ({place}): arguments are not a JSON object"
                    ))
                }
                Err(error) => return Err(format!("tool call '{name}' ({place}): {error}")),
            }
            Ok(())
        })?;
        let mut filled = mapped.clone();
        fill_contents(&mut filled);
        let mut variants = vec![mapped];
        let texts = |messages: &Json| {
            let mut texts = messages.clone();
            each_arguments(&mut texts, &mut |arguments, _, _| {
                if arguments.is_object() {
                    *arguments =
                        Json::String(to_json_text(arguments).map_err(|error| error.to_string())?);
                }
                Ok(())
            })
            .map(|()| texts)
        };
        if filled != variants[0] {
            variants.push(filled);
        }
        for i in 0..variants.len() {
            let candidate = texts(&variants[i])?;
            if candidate != variants[i] {
                variants.push(candidate);
            }
        }
        Ok(variants)
    }

    /// The template's variables.
    pub fn context(&self, messages: &Json) -> Result<Value> {
        let mut map = IndexMap::new();
        map.insert(Value::from("messages"), to_value(messages, self.mark)?);
        map.insert(Value::from("tools"), to_value(&self.tools, self.mark)?);
        map.insert(Value::from("documents"), Value::from(()));
        map.insert(Value::from("add_generation_prompt"), Value::from(self.add_generation_prompt));
        for (key, value) in self.specials.as_object().into_iter().flatten() {
            // tokenizer_config.json may give {"content": "<s>", ...}.
            let text = value.get("content").unwrap_or(value);
            map.insert(Value::from(key.as_str()), to_value(text, false)?);
        }
        for (key, value) in self.extra.as_object().into_iter().flatten() {
            map.insert(Value::from(key.as_str()), to_value(value, self.mark)?);
        }
        dict(map)
    }
}

type Visit<'a> = &'a mut dyn FnMut(&mut Json, &str, &str) -> std::result::Result<(), String>;

fn each_arguments(messages: &mut Json, visit: Visit) -> std::result::Result<(), String> {
    for (i, message) in messages.as_array_mut().into_iter().flatten().enumerate() {
        if let Some(call) = message.get_mut("function_call") {
            visit_call(call, &format!("messages[{i}].function_call"), visit)?;
        }
        let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
        for (j, call) in calls.into_iter().flatten().enumerate() {
            visit_call(call, &format!("messages[{i}].tool_calls[{j}]"), visit)?;
        }
    }
    Ok(())
}

fn visit_call(call: &mut Json, place: &str, visit: Visit) -> std::result::Result<(), String> {
    let call = match call.get("function").is_some_and(Json::is_object) {
        true => &mut call["function"],
        false => call,
    };
    let name = call.get("name").and_then(Json::as_str).unwrap_or("?").to_string();
    match call.get_mut("arguments") {
        Some(arguments) => visit(arguments, &name, place),
        None => Ok(()),
    }
}

fn fill_contents(messages: &mut Json) {
    for message in messages.as_array_mut().into_iter().flatten().filter_map(Json::as_object_mut) {
        let empty = || Json::String(String::new());
        let content = message.entry("content").or_insert_with(empty);
        if content.is_null() {
            *content = empty();
        }
    }
}
