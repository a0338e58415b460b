//! Jinja tokens with transformers' settings: trim_blocks and lstrip_blocks on, one final newline
//! dropped.
//!
//! Whitespace control is applied here, so what follows sees plain data and tag tokens. Strings
//! arrive decoded. Positions are turned into line numbers of the template's source.

use std::collections::HashMap;

#[derive(Debug, Clone, PartialEq)]
pub enum Tok {
    Data(String),
    VarBegin,
    VarEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
    Eof,
}

#[derive(Debug, Clone)]
pub struct Token {
    pub tok: Tok,
    pub line: u32,
}

/// What is wrong with the template's text, and where.
#[derive(Debug)]
pub struct SyntaxError {
    pub line: u32,
    pub message: String,
}

pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

const OPERATORS: [&str; 27] = [
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";", "!",
];

struct Lexer<'a> {
    src: &'a str,
    pos: usize,
    line: u32,
    counted: usize,
    line_starting: bool,
    out: Vec<Token>,
}

#[derive(Clone, Copy, PartialEq)]
enum Tag {
    Comment,
    Block,
    Variable,
}

/// Cuts a template into tokens; the last one is Eof.
pub fn tokenize(source: &str) -> Result<Vec<Token>, SyntaxError> {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    let mut lexer =
        Lexer { src: &text, pos: 0, line: 1, counted: 0, line_starting: true, out: Vec::new() };
    lexer.run()?;
    let line = lexer.line_at(text.len());
    let mut out = lexer.out;
    out.push(Token { tok: Tok::Eof, line });
    Ok(out)
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.src[self.pos..]
    }

    // Lines are asked for in rising order, so counting is linear over the whole template.
    fn line_at(&mut self, pos: usize) -> u32 {
        if pos > self.counted {
            self.line += self.src[self.counted..pos].bytes().filter(|b| *b == b'\n').count() as u32;
            self.counted = pos;
        }
        self.line
    }

    fn fail<T>(&mut self, pos: usize, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { line: self.line_at(pos), message: message.into() })
    }

    fn push(&mut self, tok: Tok, pos: usize) {
        let line = self.line_at(pos);
        self.out.push(Token { tok, line });
    }

    fn skip_space(&mut self) {
        self.pos = self.src.len() - self.rest().trim_start_matches(is_space).len();
    }

    fn next_tag(&self) -> Option<(usize, Tag)> {
        let bytes = self.src.as_bytes();
        let mut at = self.pos;
        while let Some(found) = self.src[at..].find('{') {
            at += found;
            match bytes.get(at + 1) {
                Some(b'#') => return Some((at, Tag::Comment)),
                Some(b'%') => return Some((at, Tag::Block)),
                Some(b'{') => return Some((at, Tag::Variable)),
                _ => at += 1,
            }
        }
        None
    }

    fn run(&mut self) -> Result<(), SyntaxError> {
        while self.pos < self.src.len() {
            let Some((at, tag)) = self.next_tag() else {
                let (start, data) = (self.pos, self.rest().to_string());
                self.push(Tok::Data(data), start);
                self.pos = self.src.len();
                return Ok(());
            };
            let sign = self.sign_at(at + 2);
            self.data(self.pos, at, sign, tag != Tag::Variable);
            self.pos = at + 2 + sign.map_or(0, |_| 1);
            match tag {
                Tag::Comment => self.comment(at)?,
                Tag::Variable => {
                    self.push(Tok::VarBegin, at);
                    self.inside(at, "}}", Tok::VarEnd)?;
                }
                Tag::Block => {
                    if let Some(body) = self.raw_begin() {
                        self.raw(at, body)?;
                    } else {
                        self.push(Tok::BlockBegin, at);
                        self.inside(at, "%}", Tok::BlockEnd)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn sign_at(&self, pos: usize) -> Option<u8> {
        self.src.as_bytes().get(pos).copied().filter(|b| *b == b'-' || *b == b'+')
    }

    // Data before a tag, with that tag's whitespace control applied to its end.
    fn data(&mut self, start: usize, end: usize, sign: Option<u8>, lstrip: bool) {
        let src = self.src;
        let mut text = &src[start..end];
        if sign == Some(b'-') {
            text = text.trim_end_matches(is_space);
        } else if sign.is_none() && lstrip {
            let line = text.rfind('\n').map_or(0, |p| p + 1);
            if (line > 0 || self.line_starting) && text[line..].chars().all(is_space) {
                text = &text[..line];
            }
        }
        if !text.is_empty() {
            self.push(Tok::Data(text.to_string()), start);
        }
    }

    // A closing delimiter at the cursor, with the whitespace it swallows; None when it is not
    // there.
    fn close(&self, delimiter: &str, trims_newline: bool, plus: bool) -> Option<usize> {
        let rest = self.rest();
        if let Some(after) = rest.strip_prefix('-').and_then(|r| r.strip_prefix(delimiter)) {
            return Some(self.src.len() - after.trim_start_matches(is_space).len());
        }
        if plus {
            if let Some(after) = rest.strip_prefix('+').and_then(|r| r.strip_prefix(delimiter)) {
                return Some(self.src.len() - after.len());
            }
        }
        let after = rest.strip_prefix(delimiter)?;
        let after = if trims_newline { after.strip_prefix('\n').unwrap_or(after) } else { after };
        Some(self.src.len() - after.len())
    }

    fn closed(&mut self, end: usize) {
        self.line_starting = self.src[..end].ends_with('\n');
        self.pos = end;
    }

    fn comment(&mut self, start: usize) -> Result<(), SyntaxError> {
        let Some(found) = self.rest().find("#}") else {
            return self.fail(start, "a comment is never closed with #}");
        };
        let mut at = self.pos + found;
        if found > 0 && self.sign_at(at - 1).is_some() {
            at -= 1;
        }
        self.pos = at;
        let end = self.close("#}", true, true).unwrap_or(self.src.len());
        self.closed(end);
        Ok(())
    }

    // The start of a raw block's text when the cursor stands behind the `{%` of a `{% raw %}`.
    fn raw_begin(&self) -> Option<usize> {
        let rest = self
            .rest()
            .trim_start_matches(is_space)
            .strip_prefix("raw")?
            .trim_start_matches(is_space);
        if let Some(after) = rest.strip_prefix("-%}") {
            return Some(self.src.len() - after.trim_start_matches(is_space).len());
        }
        rest.strip_prefix("%}").map(|after| self.src.len() - after.len())
    }

    fn raw(&mut self, start: usize, body: usize) -> Result<(), SyntaxError> {
        self.line_starting = self.src[..body].ends_with('\n');
        let mut from = body;
        while let Some(found) = self.src[from..].find("{%") {
            let tag = from + found;
            let sign = self.sign_at(tag + 2);
            self.pos = tag + 2 + sign.map_or(0, |_| 1);
            self.skip_space();
            if self.rest().starts_with("endraw") {
                self.pos += "endraw".len();
                self.skip_space();
                if let Some(end) = self.close("%}", true, true) {
                    self.data(body, tag, sign, true);
                    self.closed(end);
                    return Ok(());
                }
            }
            from = tag + 2;
        }
        self.fail(start, "a raw block is never closed with endraw")
    }

    // The tokens of one tag up to its closing delimiter; braces inside must balance first.
    fn inside(&mut self, start: usize, delimiter: &str, end_tok: Tok) -> Result<(), SyntaxError> {
        let mut open: Vec<&'static str> = Vec::new();
        let block = delimiter == "%}";
        loop {
            if open.is_empty() {
                if let Some(end) = self.close(delimiter, block, block) {
                    let pos = self.pos;
                    self.push(end_tok, pos);
                    self.closed(end);
                    return Ok(());
                }
            }
            let Some(c) = self.rest().chars().next() else {
                return self.fail(start, format!("a tag is never closed with {delimiter}"));
            };
            let pos = self.pos;
            if is_space(c) {
                self.skip_space();
            } else if c.is_ascii_digit() {
                self.number()?;
            } else if c.is_alphanumeric() || c == '_' {
                let name: String =
                    self.rest().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                self.pos += name.len();
                self.push(Tok::Name(name), pos);
            } else if c == '"' || c == '\'' {
                self.string(c)?;
            } else {
                self.operator(&mut open)?;
            }
        }
    }

    fn operator(&mut self, open: &mut Vec<&'static str>) -> Result<(), SyntaxError> {
        let pos = self.pos;
        let Some(op) =
            OPERATORS.iter().find(|op| self.rest().starts_with(**op)).filter(|op| **op != "!")
        else {
            let found = self.rest().chars().next().unwrap_or(' ');
            return self.fail(pos, format!("unexpected character {found:?}"));
        };
        match *op {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" => match open.pop() {
                None => return self.fail(pos, format!("unexpected '{op}'")),
                Some(want) if want != *op => {
                    return self.fail(pos, format!("unexpected '{op}', expected '{want}'"))
                }
                Some(_) => {}
            },
            _ => {}
        }
        self.pos += op.len();
        self.push(Tok::Op(op), pos);
        Ok(())
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        let pos = self.pos;
        let bytes = self.src.as_bytes();
        let digits = |mut at: usize| {
            while at < bytes.len()
                && (bytes[at].is_ascii_digit()
                    || (bytes[at] == b'_' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)))
            {
                at += 1;
            }
            at
        };
        if let Some(radix) = match bytes.get(pos + 1).map(u8::to_ascii_lowercase) {
            Some(b'x') if bytes[pos] == b'0' => Some(16),
            Some(b'o') if bytes[pos] == b'0' => Some(8),
            Some(b'b') if bytes[pos] == b'0' => Some(2),
            _ => None,
        } {
            let body: String =
                self.rest()[2..].chars().take_while(|c| c.is_digit(radix) || *c == '_').collect();
            self.pos += 2 + body.len();
            return match i128::from_str_radix(&body.replace('_', ""), radix) {
                Ok(value) => {
                    self.push(Tok::Int(value), pos);
                    Ok(())
                }
                Err(_) => self.fail(pos, "bad number"),
            };
        }
        let mut end = digits(pos);
        let whole = end;
        let after_dot = pos > 0 && bytes[pos - 1] == b'.';
        if !after_dot
            && bytes.get(end) == Some(&b'.')
            && bytes.get(end + 1).is_some_and(u8::is_ascii_digit)
        {
            end = digits(end + 1);
        }
        if !after_dot && matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
                end = digits(end + 1 + sign);
            }
        }
        let text = self.src[pos..end].replace('_', "");
        self.pos = end;
        if end == whole {
            match text.parse() {
                Ok(value) => self.push(Tok::Int(value), pos),
                Err(_) => return self.fail(pos, "number too large"),
            }
        } else {
            match text.parse::<f64>() {
                Ok(value) if value.is_finite() => self.push(Tok::Float(value), pos),
                _ => return self.fail(pos, "number too large"),
            }
        }
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<(), SyntaxError> {
        let pos = self.pos;
        let bytes = self.src.as_bytes();
        let mut end = pos + 1;
        while end < bytes.len() && bytes[end] != quote as u8 {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        if end >= bytes.len() {
            return self.fail(pos, "a string is never closed");
        }
        self.pos = end + 1;
        match unescape(&self.src[pos + 1..end]) {
            Ok(text) => {
                self.push(Tok::Str(text), pos);
                Ok(())
            }
            Err(message) => self.fail(pos, message),
        }
    }
}

// Python's string escapes; an unknown escape keeps its backslash.
fn unescape(text: &str) -> Result<String, String> {
    let simple: HashMap<char, char> = [
        ('\\', '\\'),
        ('\'', '\''),
        ('"', '"'),
        ('a', '\x07'),
        ('b', '\x08'),
        ('f', '\x0c'),
        ('n', '\n'),
        ('r', '\r'),
        ('t', '\t'),
        ('v', '\x0b'),
    ]
    .into();
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(kind) = chars.next() else {
            out.push('\\');
            break;
        };
        let digits = match kind {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            '0'..='7' => 0,
            '\n' => continue,
            _ => {
                match simple.get(&kind) {
                    Some(value) => out.push(*value),
                    None => out.extend(['\\', kind]),
                }
                continue;
            }
        };
        let mut code = if digits == 0 { kind.to_digit(8).unwrap_or(0) } else { 0 };
        let (radix, most) = if digits == 0 { (8, 2) } else { (16, digits) };
        let mut count = 0;
        while count < most {
            let Some(value) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
            code = code.wrapping_mul(radix).wrapping_add(value);
            chars.next();
            count += 1;
        }
        if digits > 0 && count < digits {
            return Err(format!("truncated \\{kind} escape in a string"));
        }
        match char::from_u32(code) {
            Some(value) => out.push(value),
            None => return Err(format!("\\{kind} escape names no character")),
        }
    }
    Ok(out)
}
