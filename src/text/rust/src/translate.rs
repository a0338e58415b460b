//! Statements of a template, rewritten into the part of minijinja's language that means the same
//! there.
//!
//! Output is a template without whitespace control whose tags stand on the lines they had in the
//! source, so that run-time errors carry the right line. Data becomes `{{ "..." }}`, which lets the
//! formatter count it.

use crate::expr::{quote, Parser, Translated};
use crate::lexer::{tokenize, SyntaxError, Tok};

const SOURCE_BYTES_MAX: usize = 4 << 20;
const BLOCK_DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Block {
    For,
    If,
    Set,
    Macro,
    Call,
    Filter,
    With,
    Generation,
    Named,
}

impl Block {
    fn end(self) -> &'static str {
        match self {
            Block::For => "endfor",
            Block::If => "endif",
            Block::Set => "endset",
            Block::Macro => "endmacro",
            Block::Call => "endcall",
            Block::Filter => "endfilter",
            Block::With => "endwith",
            Block::Generation => "endgeneration",
            Block::Named => "endblock",
        }
    }
}

struct Open {
    block: Block,
    line: u32,
    has_else: bool,
}

struct Translator {
    parser: Parser,
    out: String,
    out_line: u32,
    open: Vec<Open>,
}

/// The template in canonical form, or what is wrong with it.
pub fn translate(source: &str) -> Translated {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(SyntaxError {
            line: 1,
            message: format!("template larger than {SOURCE_BYTES_MAX} bytes"),
        });
    }
    let parser = Parser::new(tokenize(source)?);
    let mut translator = Translator { parser, out: String::new(), out_line: 1, open: Vec::new() };
    translator.run()?;
    Ok(translator.out)
}

impl Translator {
    // Writes a tag; line breaks inside it bring the output to the tag's source line.
    fn tag(&mut self, line: u32, begin: &str, body: &str, end: &str) {
        self.out.push_str(begin);
        while self.out_line < line {
            self.out.push('\n');
            self.out_line += 1;
        }
        self.out.push(' ');
        self.out.push_str(body);
        self.out.push(' ');
        self.out.push_str(end);
    }

    fn block(&mut self, line: u32, body: &str) {
        self.tag(line, "{%", body, "%}");
    }

    fn run(&mut self) -> Result<(), SyntaxError> {
        loop {
            let line = self.parser.line();
            match self.parser.advance() {
                Tok::Data(text) => self.tag(line, "{{", &quote(&text), "}}"),
                Tok::VarBegin => {
                    let value = self.parser.tuple(true, "")?;
                    if self.parser.peek() != &Tok::VarEnd {
                        return self.parser.unexpected("'}}'");
                    }
                    self.parser.advance();
                    self.tag(line, "{{", &value, "}}");
                }
                Tok::BlockBegin => {
                    self.statement(line)?;
                    if self.parser.peek() != &Tok::BlockEnd {
                        return self.parser.unexpected("'%}'");
                    }
                    self.parser.advance();
                }
                _ => break,
            }
        }
        match self.open.last() {
            None => Ok(()),
            Some(open) => {
                let message = format!("end of template, but '{}' is missing", open.block.end());
                Err(SyntaxError { line: open.line, message })
            }
        }
    }

    fn enter(&mut self, line: u32, block: Block) -> Result<(), SyntaxError> {
        if self.open.len() >= BLOCK_DEPTH_MAX {
            return self.parser.fail("blocks nested too deeply");
        }
        self.open.push(Open { block, line, has_else: false });
        self.look_around();
        self.parser.skip_op(":");
        Ok(())
    }

    // Tells the expression parser what it stands in.
    fn look_around(&mut self) {
        let within = |block| self.open.iter().any(|open| open.block == block);
        (self.parser.in_macro, self.parser.in_branch) = (within(Block::Macro), within(Block::If));
    }

    fn statement(&mut self, line: u32) -> Result<(), SyntaxError> {
        let keyword = self.parser.expect_name()?;
        match keyword.as_str() {
            "if" => {
                let test = self.parser.tuple(false, "")?;
                self.block(line, &format!("if {test}"));
                self.enter(line, Block::If)
            }
            "elif" | "else" => self.branch(line, &keyword),
            "for" => self.for_loop(line),
            "set" => self.set(line),
            "macro" => self.macro_block(line),
            "call" => self.call_block(line),
            "filter" => {
                let mut filter = self.parser.filter(String::new())?;
                while self.parser.at_op("|") {
                    filter = self.parser.filter(filter)?;
                }
                self.block(line, &format!("filter {filter}"));
                self.enter(line, Block::Filter)
            }
            "with" => self.with(line),
            "generation" => {
                self.block(line, "with");
                self.enter(line, Block::Generation)
            }
            "block" => {
                let name = self.parser.expect_name()?;
                self.parser.skip_name("scoped");
                self.block(line, &format!("block {name}"));
                self.enter(line, Block::Named)
            }
            "break" | "continue" => self.jump(line, &keyword),
            "include" | "import" | "from" | "extends" => {
                while !matches!(self.parser.peek(), Tok::BlockEnd | Tok::Eof) {
                    self.parser.advance();
                }
                let message =
                    format!("'{keyword}' needs another template and a model has only one");
                self.tag(line, "{{", &format!("__py_fail({})", quote(&message)), "}}");
                Ok(())
            }
            _ => self.end(line, &keyword),
        }
    }

    fn branch(&mut self, line: u32, keyword: &str) -> Result<(), SyntaxError> {
        let kind = self.open.last().map(|open| (open.block, open.has_else));
        match (kind, keyword) {
            (Some((Block::If, false)), "elif") => {
                let test = self.parser.tuple(false, "")?;
                self.block(line, &format!("elif {test}"));
            }
            (Some((Block::If | Block::For, false)), "else") => {
                if let Some(open) = self.open.last_mut() {
                    open.has_else = true;
                }
                self.block(line, "else");
            }
            _ => return self.parser.fail(format!("'{keyword}' does not belong here")),
        }
        self.parser.skip_op(":");
        Ok(())
    }

    fn end(&mut self, line: u32, keyword: &str) -> Result<(), SyntaxError> {
        let Some(open) = self.open.last() else {
            return self.parser.fail(format!("unknown tag '{keyword}'"));
        };
        let block = open.block;
        if block.end() != keyword {
            return self.parser.fail(format!(
                "unknown tag '{keyword}' (inside a block that ends with '{}')",
                block.end()
            ));
        }
        if block == Block::Named && matches!(self.parser.peek(), Tok::Name(_)) {
            self.parser.advance();
        }
        self.open.pop();
        self.look_around();
        self.block(line, if block == Block::Generation { "endwith" } else { keyword });
        Ok(())
    }

    // Names, tuples of names and, in `set`, one attribute of a namespace.
    fn target(&mut self, namespace: bool, nested: bool) -> Translated {
        let mut parts = Vec::new();
        loop {
            if self.parser.skip_op("(") {
                let inner = self.target(namespace, true)?;
                self.parser.expect_op(")")?;
                parts.push(format!("({inner})"));
            } else {
                let name = self.parser.expect_name()?;
                if ["true", "false", "none", "True", "False", "None"].contains(&name.as_str()) {
                    return self.parser.fail(format!("cannot assign to '{name}'"));
                }
                if namespace && self.parser.skip_op(".") {
                    let attribute = self.parser.expect_name()?;
                    parts.push(format!("{name}.{attribute}"));
                } else {
                    parts.push(name);
                }
            }
            if !self.parser.skip_op(",") {
                break;
            }
            if self.parser.at_name("in")
                || self.parser.at_op("=")
                || (nested && self.parser.at_op(")"))
            {
                parts.push(String::new());
                break;
            }
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { parts.join(", ") })
    }

    fn for_loop(&mut self, line: u32) -> Result<(), SyntaxError> {
        let target = self.target(false, false)?;
        if !self.parser.skip_name("in") {
            return self.parser.unexpected("'in'");
        }
        let iter = self.parser.tuple(false, "recursive")?;
        let mut body = format!("for {target} in __py_iter({iter})");
        if self.parser.skip_name("if") {
            body += &format!(" if {}", self.parser.expression()?);
        }
        if self.parser.skip_name("recursive") {
            body += " recursive";
        }
        self.block(line, &body);
        self.enter(line, Block::For)
    }

    fn set(&mut self, line: u32) -> Result<(), SyntaxError> {
        let target = self.target(true, false)?;
        if self.parser.skip_op("=") {
            let value = self.parser.tuple(true, "")?;
            self.block(line, &format!("set {target} = {value}"));
            return Ok(());
        }
        let mut filter = String::new();
        while self.parser.at_op("|") {
            filter = self.parser.filter(filter)?;
        }
        let pipe = if filter.is_empty() { "" } else { " | " };
        self.block(line, &format!("set {target}{pipe}{filter}"));
        self.enter(line, Block::Set)
    }

    // Name and default of every parameter, in parentheses.
    fn signature(&mut self) -> Translated {
        self.parser.expect_op("(")?;
        let mut params: Vec<String> = Vec::new();
        while !self.parser.at_op(")") {
            if !params.is_empty() {
                self.parser.expect_op(",")?;
                if self.parser.at_op(")") {
                    break;
                }
            }
            let name = self.parser.expect_name()?;
            params.push(if self.parser.skip_op("=") {
                format!("{name}={}", self.parser.expression()?)
            } else {
                name
            });
        }
        self.parser.expect_op(")")?;
        Ok(format!("({})", params.join(", ")))
    }

    fn macro_block(&mut self, line: u32) -> Result<(), SyntaxError> {
        let name = self.parser.expect_name()?;
        let signature = self.signature()?;
        self.block(line, &format!("macro {name}{signature}"));
        self.enter(line, Block::Macro)
    }

    fn call_block(&mut self, line: u32) -> Result<(), SyntaxError> {
        let signature = if self.parser.at_op("(") { self.signature()? } else { String::new() };
        let call = self.parser.expression()?;
        self.block(line, &format!("call{signature} {call}"));
        self.enter(line, Block::Call)
    }

    fn with(&mut self, line: u32) -> Result<(), SyntaxError> {
        let mut parts = Vec::new();
        while self.parser.peek() != &Tok::BlockEnd {
            if !parts.is_empty() {
                self.parser.expect_op(",")?;
            }
            let name = self.parser.expect_name()?;
            self.parser.expect_op("=")?;
            parts.push(format!("{name} = {}", self.parser.expression()?));
        }
        self.block(line, &format!("with {}", parts.join(", ")));
        self.enter(line, Block::With)
    }

    // A jump must reach its loop through ifs only: other blocks hold a frame that minijinja would
    // not leave.
    fn jump(&mut self, line: u32, keyword: &str) -> Result<(), SyntaxError> {
        for open in self.open.iter().rev() {
            match open.block {
                Block::For if open.has_else => break,
                Block::For => {
                    self.block(line, keyword);
                    return Ok(());
                }
                Block::If => {}
                Block::With | Block::Set | Block::Filter => {
                    return self.parser.fail(format!(
                        "'{keyword}' out of a with, set or filter block is not supported"
                    ));
                }
                _ => break,
            }
        }
        self.parser.fail(format!("'{keyword}' outside of a loop"))
    }
}
