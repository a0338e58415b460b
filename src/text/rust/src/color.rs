//! Marked text: which characters of the output came from the conversation and which from the
//! template.
//!
//! Every character of a message string is moved to an unassigned Unicode plane, one to one, before
//! rendering (`paint`), and moved back afterwards (`unpaint`). All string operations of this crate
//! compare characters through `plain`, so a template cannot tell the difference, and slices, trims
//! and splits carry the mark along exactly. Planes 0-3 map to 4-7 and planes 14-16 to 8-10; planes
//! 4-13 hold no character in any Unicode version. A conversation that contains such code points
//! gets U+FFFD for them in marked mode.

use std::borrow::Cow;

/// The character without its mark.
pub fn plain_char(c: char) -> char {
    let code = c as u32;
    let origin = match code >> 16 {
        4..=7 => code - 0x40000,
        8..=10 => code + 0x60000,
        _ => return c,
    };
    char::from_u32(origin).unwrap_or(c)
}

pub fn is_painted_char(c: char) -> bool {
    (0x40000..0xB0000).contains(&(c as u32))
}

/// The marked form of a character; marked and unassigned characters become a marked U+FFFD.
pub fn paint_char(c: char) -> char {
    let code = c as u32;
    let target = match code >> 16 {
        0..=3 => code + 0x40000,
        14..=16 => code - 0x60000,
        _ => 0xFFFD + 0x40000,
    };
    char::from_u32(target).unwrap_or(c)
}

/// Copies the mark of `model` onto `c`.
pub fn paint_like(model: char, c: char) -> char {
    if is_painted_char(model) {
        paint_char(c)
    } else {
        c
    }
}

pub fn paint(text: &str) -> String {
    text.chars().map(paint_char).collect()
}

/// Marked characters are four bytes long and start with F1 or F2; nothing assigned does.
pub fn may_be_painted(text: &str) -> bool {
    text.bytes().any(|b| b == 0xF1 || b == 0xF2)
}

/// The text without marks; borrows when there is nothing to do.
pub fn plain(text: &str) -> Cow<'_, str> {
    if may_be_painted(text) {
        Cow::Owned(text.chars().map(plain_char).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// A string with its plain form and a way to cut the original at plain offsets.
pub struct Text<'a> {
    raw: &'a str,
    plain: Cow<'a, str>,
    offsets: Vec<u32>, // plain byte offset -> raw byte offset, only when the string is marked
}

impl<'a> Text<'a> {
    pub fn new(raw: &'a str) -> Self {
        let plain = plain(raw);
        let mut offsets = Vec::new();
        if let Cow::Owned(text) = &plain {
            offsets = vec![0u32; text.len() + 1];
            let mut at = 0;
            for (start, c) in raw.char_indices() {
                offsets[at] = start as u32;
                at += plain_char(c).len_utf8();
            }
            offsets[at] = raw.len() as u32;
        }
        Text { raw, plain, offsets }
    }

    pub fn plain(&self) -> &str {
        &self.plain
    }

    /// The original between two character boundaries of the plain form.
    pub fn cut(&self, start: usize, end: usize) -> &'a str {
        if self.offsets.is_empty() {
            &self.raw[start..end]
        } else {
            &self.raw[self.offsets[start] as usize..self.offsets[end] as usize]
        }
    }

    pub fn raw(&self) -> &'a str {
        self.raw
    }
}

/// Takes the marks off and returns the text with the byte lengths of alternating runs: template,
/// text, template, ... (the first may be 0). Characters that cannot carry a mark join the run they
/// stand in.
pub fn unpaint(marked: &str) -> (String, Vec<u32>) {
    let mut text = String::with_capacity(marked.len());
    let mut runs = vec![0u32];
    let mut in_text = false;
    for c in marked.chars() {
        if is_painted_char(c) != in_text {
            in_text = !in_text;
            runs.push(0);
        }
        let origin = plain_char(c);
        text.push(origin);
        if let Some(last) = runs.last_mut() {
            *last += origin.len_utf8() as u32;
        }
    }
    (text, runs)
}
