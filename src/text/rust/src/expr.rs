//! Expressions of a template, rewritten so that minijinja evaluates them as Python does.
//!
//! The grammar is Jinja's own (precedence included). Operators, subscripts and Python methods whose
//! meaning differs between the two become calls of functions named `__py_*`; names, filters, tests,
//! calls, `and`, `or`, `not` and conditionals stay what they are. Nothing is evaluated here.

use crate::lexer::{SyntaxError, Tok, Token};
use crate::methods::is_python_method;

const DEPTH_MAX: u32 = 48;

/// A cursor over the tokens of a template that can translate the expression in front of it.
pub struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    pub in_macro: bool,
    pub in_branch: bool,
}

pub type Translated = Result<String, SyntaxError>;

/// A string literal as minijinja reads it; line breaks are escaped so that lines stay in step.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Parser {
    pub fn new(tokens: Vec<Token>) -> Self {
        Parser { tokens, at: 0, depth: 0, in_macro: false, in_branch: false }
    }

    pub fn peek(&self) -> &Tok {
        &self.tokens[self.at].tok
    }

    pub fn peek_next(&self) -> &Tok {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].tok
    }

    pub fn line(&self) -> u32 {
        self.tokens[self.at].line
    }

    pub fn advance(&mut self) -> Tok {
        let tok = self.tokens[self.at].tok.clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        tok
    }

    pub fn fail<T>(&self, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { line: self.line(), message: message.into() })
    }

    pub fn unexpected<T>(&self, wanted: &str) -> Result<T, SyntaxError> {
        let found = match self.peek() {
            Tok::Eof => "end of template".to_string(),
            Tok::VarEnd => "'}}'".to_string(),
            Tok::BlockEnd => "'%}'".to_string(),
            Tok::Name(name) => format!("'{name}'"),
            Tok::Op(op) => format!("'{op}'"),
            Tok::Str(_) => "a string".to_string(),
            Tok::Int(_) | Tok::Float(_) => "a number".to_string(),
            Tok::Data(_) | Tok::VarBegin | Tok::BlockBegin => "template data".to_string(),
        };
        self.fail(format!("expected {wanted}, found {found}"))
    }

    pub fn at_op(&self, op: &str) -> bool {
        matches!(self.peek(), Tok::Op(found) if *found == op)
    }

    pub fn at_name(&self, name: &str) -> bool {
        matches!(self.peek(), Tok::Name(found) if found == name)
    }

    pub fn skip_op(&mut self, op: &str) -> bool {
        let found = self.at_op(op);
        if found {
            self.advance();
        }
        found
    }

    pub fn skip_name(&mut self, name: &str) -> bool {
        let found = self.at_name(name);
        if found {
            self.advance();
        }
        found
    }

    pub fn expect_op(&mut self, op: &'static str) -> Result<(), SyntaxError> {
        if self.skip_op(op) {
            return Ok(());
        }
        self.unexpected(&format!("'{op}'"))
    }

    pub fn expect_name(&mut self) -> Result<String, SyntaxError> {
        match self.peek() {
            Tok::Name(_) => match self.advance() {
                Tok::Name(name) => Ok(name),
                _ => self.unexpected("a name"),
            },
            _ => self.unexpected("a name"),
        }
    }

    fn nested(&mut self, parse: fn(&mut Self) -> Translated) -> Translated {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fail("expression nested too deeply");
        }
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// A full expression, conditionals included.
    pub fn expression(&mut self) -> Translated {
        self.nested(Self::conditional)
    }

    /// One expression or a tuple without parentheses, up to the end of the tag or the name `stop`.
    pub fn tuple(&mut self, conditional: bool, stop: &str) -> Translated {
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            let ended = matches!(self.peek(), Tok::VarEnd | Tok::BlockEnd) || self.at_op(")");
            if ended || (!stop.is_empty() && self.at_name(stop)) {
                break;
            }
            items.push(if conditional { self.expression()? } else { self.nested(Self::or)? });
            if !self.skip_op(",") {
                break;
            }
            is_tuple = true;
        }
        match items.pop() {
            Some(only) if !is_tuple => Ok(only),
            None => self.unexpected("an expression"),
            Some(last) => {
                items.push(last);
                Ok(format!("__py_tuple({})", items.join(", ")))
            }
        }
    }

    fn conditional(&mut self) -> Translated {
        let mut value = self.or()?;
        while self.skip_name("if") {
            let test = self.or()?;
            value = if self.skip_name("else") {
                let other = self.nested(Self::conditional)?;
                format!("({value} if {test} else {other})")
            } else {
                format!("({value} if {test})")
            };
        }
        Ok(value)
    }

    fn or(&mut self) -> Translated {
        let mut terms = vec![self.and()?];
        while self.skip_name("or") {
            terms.push(self.and()?);
        }
        Ok(wrap_many(terms, " or "))
    }

    fn and(&mut self) -> Translated {
        let mut terms = vec![self.not()?];
        while self.skip_name("and") {
            terms.push(self.not()?);
        }
        Ok(wrap_many(terms, " and "))
    }

    fn not(&mut self) -> Translated {
        if self.skip_name("not") {
            return Ok(format!("(not {})", self.nested(Self::not)?));
        }
        self.compare()
    }

    fn compare(&mut self) -> Translated {
        let first = self.sum()?;
        let mut args = vec![first];
        loop {
            let op = match self.peek() {
                Tok::Op(op @ ("==" | "!=" | "<" | "<=" | ">" | ">=")) => *op,
                Tok::Name(name) if name == "in" => "in",
                Tok::Name(name)
                    if name == "not" && matches!(self.peek_next(), Tok::Name(n) if n == "in") =>
                {
                    self.advance();
                    "not in"
                }
                _ => break,
            };
            self.advance();
            args.push(quote(op));
            args.push(self.sum()?);
        }
        Ok(call_unless_single("__py_compare", args))
    }

    fn sum(&mut self) -> Translated {
        let mut args = vec![self.concat()?];
        loop {
            let plus = self.at_op("+");
            if !plus && !self.at_op("-") {
                return Ok(call_unless_single("__py_add", args));
            }
            self.advance();
            let right = self.concat()?;
            if plus {
                args.push(right);
            } else {
                args = vec![format!(
                    "__py_arith({}, \"-\", {right})",
                    call_unless_single("__py_add", args)
                )];
            }
        }
    }

    fn concat(&mut self) -> Translated {
        let mut args = vec![self.product()?];
        while self.skip_op("~") {
            args.push(self.product()?);
        }
        Ok(call_unless_single("__py_concat", args))
    }

    fn product(&mut self) -> Translated {
        let mut left = self.power()?;
        loop {
            let op = match self.peek() {
                Tok::Op(op @ ("*" | "/" | "//" | "%")) => *op,
                _ => return Ok(left),
            };
            self.advance();
            left = format!("__py_arith({left}, \"{op}\", {})", self.power()?);
        }
    }

    fn power(&mut self) -> Translated {
        let mut left = self.unary(true)?;
        while self.skip_op("**") {
            left = format!("__py_arith({left}, \"**\", {})", self.unary(true)?);
        }
        Ok(left)
    }

    fn unary(&mut self, with_filter: bool) -> Translated {
        let sign = match self.peek() {
            Tok::Op(op @ ("-" | "+")) => Some(*op),
            _ => None,
        };
        let mut value = if let Some(sign) = sign {
            self.advance();
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return self.fail("expression nested too deeply");
            }
            let inner = self.unary(false)?;
            self.depth -= 1;
            if sign == "-" && inner.bytes().all(|b| b.is_ascii_digit()) {
                format!("(-{inner})")
            } else {
                format!("__py_sign(\"{sign}\", {inner})")
            }
        } else {
            self.nested(Self::primary)?
        };
        value = self.postfix(value)?;
        if with_filter {
            value = self.filters_and_tests(value)?;
        }
        Ok(value)
    }

    fn primary(&mut self) -> Translated {
        match self.peek() {
            Tok::Name(_) => self.name(),
            Tok::Str(_) => {
                let mut text = String::new();
                while let Tok::Str(part) = self.peek() {
                    text.push_str(part);
                    self.advance();
                }
                Ok(quote(&text))
            }
            Tok::Int(value) => {
                let text = value.to_string();
                self.advance();
                Ok(text)
            }
            Tok::Float(value) => {
                let text = format!("{value:?}");
                self.advance();
                Ok(text)
            }
            Tok::Op("(") => {
                self.advance();
                if self.skip_op(")") {
                    return Ok("__py_tuple()".into());
                }
                let inner = self.tuple(true, "")?;
                self.expect_op(")")?;
                Ok(format!("({inner})"))
            }
            Tok::Op("[") => {
                self.advance();
                let items = self.items("]")?;
                Ok(format!("__py_list({})", items.join(", ")))
            }
            Tok::Op("{") => self.dict(),
            _ => self.unexpected("an expression"),
        }
    }

    fn name(&mut self) -> Translated {
        let name = self.expect_name()?;
        match name.as_str() {
            "true" | "True" => Ok("true".into()),
            "false" | "False" => Ok("false".into()),
            "none" | "None" => Ok("none".into()),
            "varargs" | "kwargs" if self.in_macro => {
                self.fail(format!("the macro variable '{name}' is not supported"))
            }
            _ => Ok(name),
        }
    }

    fn items(&mut self, close: &'static str) -> Result<Vec<String>, SyntaxError> {
        let mut items = Vec::new();
        while !self.at_op(close) {
            if !items.is_empty() {
                self.expect_op(",")?;
                if self.at_op(close) {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        self.expect_op(close)?;
        Ok(items)
    }

    fn dict(&mut self) -> Translated {
        self.advance();
        let mut parts = Vec::new();
        while !self.at_op("}") {
            if !parts.is_empty() {
                self.expect_op(",")?;
                if self.at_op("}") {
                    break;
                }
            }
            parts.push(self.expression()?);
            self.expect_op(":")?;
            parts.push(self.expression()?);
        }
        self.expect_op("}")?;
        Ok(format!("__py_dict({})", parts.join(", ")))
    }

    fn postfix(&mut self, mut value: String) -> Translated {
        loop {
            if self.skip_op(".") {
                value = self.attribute(value)?;
            } else if self.skip_op("[") {
                value = self.subscript(value)?;
            } else if self.at_op("(") {
                let args = self.call_args()?;
                value = if value == "loop" && args.len() == 1 {
                    format!("loop(__py_iter({}))", args[0])
                } else {
                    format!("{value}({})", args.join(", "))
                };
            } else {
                return Ok(value);
            }
        }
    }

    fn attribute(&mut self, value: String) -> Translated {
        if let Tok::Int(index) = self.peek() {
            let text = format!("{value}[{index}]");
            self.advance();
            return Ok(text);
        }
        let name = self.expect_name()?;
        let python = is_python_method(&name);
        if !self.at_op("(") {
            return Ok(if python {
                format!("__py_attr({value}, {})", quote(&name))
            } else {
                format!("{value}.{name}")
            });
        }
        let mut args = self.call_args()?;
        if !python {
            return Ok(format!("{value}.{name}({})", args.join(", ")));
        }
        args.splice(0..0, [value, quote(&name)]);
        Ok(format!("__py_call({})", args.join(", ")))
    }

    fn subscript(&mut self, value: String) -> Translated {
        if let (Tok::Str(key), Tok::Op("]")) = (self.peek(), self.peek_next()) {
            let key = key.clone();
            self.advance();
            self.advance();
            return Ok(if is_python_method(&key) {
                format!("__py_item({value}, {})", quote(&key))
            } else {
                format!("{value}[{}]", quote(&key))
            });
        }
        let mut parts = vec![String::from("none"), String::from("none"), String::from("none")];
        let mut index = 0;
        while !self.at_op("]") {
            if self.skip_op(":") {
                index += 1;
                if index > 2 {
                    return self.fail("a slice has at most three parts");
                }
            } else {
                parts[index] = self.expression()?;
                if !self.at_op(":") && !self.at_op("]") {
                    return self.unexpected("']'");
                }
            }
        }
        self.expect_op("]")?;
        match index {
            0 if parts[0] == "none" => self.fail("empty subscript"),
            0 => Ok(format!("{value}[{}]", parts[0])),
            _ => Ok(format!("__py_slice({value}, {})", parts.join(", "))),
        }
    }

    /// The arguments of a call, parentheses included, each as it stands in minijinja's call.
    pub fn call_args(&mut self) -> Result<Vec<String>, SyntaxError> {
        self.expect_op("(")?;
        let mut args = Vec::new();
        let mut keywords = false;
        while !self.at_op(")") {
            if !args.is_empty() {
                self.expect_op(",")?;
                if self.at_op(")") {
                    break;
                }
            }
            if self.skip_op("*") {
                args.push(format!("*{}", self.expression()?));
            } else if self.skip_op("**") {
                keywords = true;
                args.push(format!("**{}", self.expression()?));
            } else if matches!((self.peek(), self.peek_next()), (Tok::Name(_), Tok::Op("="))) {
                let key = self.expect_name()?;
                self.advance();
                keywords = true;
                args.push(format!("{key}={}", self.expression()?));
            } else if keywords {
                return self.fail("a positional argument follows a keyword argument");
            } else {
                args.push(self.expression()?);
            }
        }
        self.expect_op(")")?;
        Ok(args)
    }

    fn filters_and_tests(&mut self, mut value: String) -> Translated {
        loop {
            if self.at_op("|") {
                value = self.filter(value)?;
            } else if self.at_name("is") {
                value = self.test(value)?;
            } else if self.at_op("(") {
                let args = self.call_args()?;
                value = format!("{value}({})", args.join(", "));
            } else {
                return Ok(value);
            }
        }
    }

    // Under an `if` the template may never get there: the error waits until it does, as in Jinja.
    fn unknown(&mut self, what: &str, name: &str) -> Translated {
        if !self.in_branch {
            return self.fail(format!("no {what} named '{name}'"));
        }
        if self.at_op("(") {
            self.call_args()?;
        }
        Ok(format!("__py_fail({})", quote(&format!("no {what} named '{name}'"))))
    }

    /// One `|name(args)`; an empty value gives the bare filter of a block.
    pub fn filter(&mut self, value: String) -> Translated {
        self.skip_op("|");
        let name = self.expect_name()?;
        if !crate::filters::NAMES.contains(&name.as_str()) {
            return self.unknown("filter", &name);
        }
        let args = if self.at_op("(") { self.call_args()? } else { Vec::new() };
        let pipe = if value.is_empty() { "" } else { "|" };
        Ok(format!("{value}{pipe}{name}({})", args.join(", ")))
    }

    fn test(&mut self, value: String) -> Translated {
        self.advance();
        let negated = self.skip_name("not");
        let name = self.expect_name()?;
        if !crate::checks::NAMES.contains(&name.as_str()) {
            return self.unknown("test", &name);
        }
        let ends = ["else", "or", "and"].iter().any(|word| self.at_name(word));
        let args = match self.peek() {
            Tok::Op("(") => self.call_args()?,
            Tok::Name(word) if word == "is" => {
                return self.fail("tests cannot be chained with 'is'")
            }
            Tok::Name(word) if !ends && word != "if" && word != "recursive" => self.test_arg()?,
            Tok::Str(_) | Tok::Int(_) | Tok::Float(_) | Tok::Op("[" | "{") => self.test_arg()?,
            _ => Vec::new(),
        };
        // Tests with names that are words of the grammar go through a function.
        let call = format!(
            "__py_test({value}, {}{})",
            quote(&name),
            args.iter().fold(String::new(), |s, a| s + ", " + a)
        );
        Ok(if negated { format!("(not {call})") } else { call })
    }

    fn test_arg(&mut self) -> Result<Vec<String>, SyntaxError> {
        let value = self.nested(Self::primary)?;
        Ok(vec![self.postfix(value)?])
    }
}

fn wrap_many(mut terms: Vec<String>, glue: &str) -> String {
    match terms.len() {
        1 => terms.remove(0),
        _ => {
            // minijinja folds constants to booleans; behind a call it cannot see them.
            terms[0] = format!("__py_value({})", terms[0]);
            format!("({})", terms.join(glue))
        }
    }
}

fn call_unless_single(function: &str, mut args: Vec<String>) -> String {
    match args.len() {
        1 => args.remove(0),
        _ => format!("{function}({})", args.join(", ")),
    }
}
