//! The XML that reference manifests are written in, and its canonical form.
//!
//! A narrow XML 1.0: elements, attributes, text, predefined and numeric references, namespaces.
//! Comments, CDATA, processing instructions and document types are refused: none occurs in a
//! manifest, and each has been a way to show one document to the eye and another to the
//! signature. What is read is the very tree whose canonical form is hashed.

use alloc::{string::String, vec::Vec};
use core::fmt::Write;

/// Deepest nesting; a manifest has six levels.
const DEPTH_MAX: usize = 16;
/// Most elements in one document; a manifest with 64 measurements has 85.
const ELEMENTS_MAX: usize = 2048;
/// Most attributes and namespace declarations of one element; a manifest has at most eleven.
const ATTRIBUTES_MAX: usize = 64;

/// Most namespaces in scope of one element, whoever declared them; a manifest has at most eight.
/// The canonical form compares them pair by pair for every element.
const NAMESPACES_MAX: usize = 32;

/// Namespaces in scope: prefix (empty: the default) and name.
type Scope = Vec<(String, String)>;

/// Attributes before their prefixes are looked up.
type Written<'a> = Vec<(&'a str, String)>;

/// An element with what it holds.
#[derive(Clone, Debug)]
pub(super) struct Element {
    /// As written: `prefix:local` or `local`.
    name: String,
    /// Name of its namespace; empty where it has none.
    pub(super) namespace: String,
    declarations: Scope,
    attributes: Vec<Attribute>,
    children: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Attribute {
    name: String,
    namespace: String,
    value: String,
}

#[derive(Clone, Debug)]
enum Node {
    Element(Element),
    Text(String),
}

impl Element {
    pub(super) fn local_name(&self) -> &str {
        local(&self.name)
    }

    /// The value of the attribute with this namespace and local name.
    pub(super) fn attribute(&self, namespace: &str, name: &str) -> Option<&str> {
        let mut found = self.attributes.iter();
        let found = found.find(|a| a.namespace == namespace && local(&a.name) == name);
        found.map(|attribute| attribute.value.as_str())
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = &Element> {
        self.children.iter().filter_map(|child| match child {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The child element with this name, if there is exactly one.
    pub(super) fn only(&self, namespace: &str, name: &str) -> Option<&Element> {
        let mut found =
            self.elements().filter(|e| e.namespace == namespace && e.local_name() == name);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// The text of an element that holds nothing else.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.children[..] {
            [Node::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Takes the last child element out, which is the enveloped-signature transform when that is
    /// the signature.
    pub(super) fn take_last(&mut self) -> Option<Element> {
        let is_element = |child: &Node| matches!(child, Node::Element(_));
        let at = self.children.iter().rposition(is_element)?;
        match self.children.remove(at) {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        }
    }

    /// Namespaces that this element declares, for [`Element::canonical`] of one of its children.
    pub(super) fn declarations(&self) -> &[(String, String)] {
        &self.declarations
    }

    /// Canonical XML 1.1 without comments (W3C, 2008) of this element as the root of a document
    /// subset, `inherited` being the namespaces of its ancestors, outermost first.
    pub(super) fn canonical(&self, inherited: &[(String, String)]) -> String {
        let mut apex: Scope = Vec::new();
        for (prefix, name) in inherited.iter().chain(&self.declarations) {
            declare(&mut apex, prefix, name);
        }
        let mut out = String::new();
        self.write(&mut out, &Vec::new(), &apex);
        out
    }

    /// `rendered`: what output ancestors have declared; `declared`: what is in scope here.
    fn write(&self, out: &mut String, rendered: &Scope, declared: &Scope) {
        out.push('<');
        out.push_str(&self.name);
        let mut new: Vec<&(String, String)> = declared
            .iter()
            .filter(|(prefix, name)| lookup(rendered, prefix).unwrap_or_default() != name)
            .collect();
        new.sort();
        for (prefix, name) in new {
            out.push_str(if prefix.is_empty() { " xmlns" } else { " xmlns:" });
            out.push_str(prefix);
            quoted(out, name);
        }
        let mut attributes: Vec<&Attribute> = self.attributes.iter().collect();
        attributes.sort_by_key(|a| (a.namespace.as_str(), local(&a.name)));
        for attribute in attributes {
            out.push(' ');
            out.push_str(&attribute.name);
            quoted(out, &attribute.value);
        }
        out.push('>');
        for child in &self.children {
            match child {
                Node::Text(text) => escape(out, text, false),
                Node::Element(element) => {
                    let mut scope = declared.clone();
                    for (prefix, name) in &element.declarations {
                        declare(&mut scope, prefix, name);
                    }
                    element.write(out, declared, &scope);
                }
            }
        }
        let _ = write!(out, "</{}>", self.name);
    }
}

/// Reads a document; the error names what is wrong.
pub(super) fn parse(text: &str) -> Result<Element, &'static str> {
    // XML 1.0 section 2.11: ends of lines are single line feeds before anything is read.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut rest = text.trim_ascii_start();
    if let Some(declaration) = rest.strip_prefix("<?xml ") {
        let (_, after) = declaration.split_once("?>").ok_or("an XML declaration")?;
        rest = after.trim_ascii_start();
    }
    let mut parser = Parser { rest, elements: 0 };
    let root = parser.element(&Vec::new(), 0)?;
    if !parser.rest.trim_ascii().is_empty() {
        return Err("one root element");
    }
    Ok(root)
}

struct Parser<'a> {
    rest: &'a str,
    elements: usize,
}

impl<'a> Parser<'a> {
    fn element(&mut self, outer: &Scope, depth: usize) -> Result<Element, &'static str> {
        self.elements += 1;
        if depth == DEPTH_MAX || self.elements > ELEMENTS_MAX {
            return Err("fewer elements");
        }
        self.expect('<')?;
        let name = self.name()?;
        let (declarations, written) = self.attributes()?;
        let mut scope = outer.clone();
        for (prefix, namespace) in &declarations {
            declare(&mut scope, prefix, namespace);
        }
        if scope.len() > NAMESPACES_MAX {
            return Err("fewer namespaces");
        }
        let namespace = match prefix(name) {
            "" => lookup(&scope, "").unwrap_or_default().into(),
            prefix => lookup(&scope, prefix).ok_or("declared prefixes")?.into(),
        };
        let attributes = resolve(written, &scope)?;
        let children = match self.take("/>") {
            true => Vec::new(),
            false => {
                self.expect('>')?;
                let children = self.children(&scope, depth)?;
                if self.name()? != name {
                    return Err("tags that match");
                }
                self.space();
                self.expect('>')?;
                children
            }
        };
        Ok(Element { name: name.into(), namespace, declarations, attributes, children })
    }

    /// Everything up to and with the `</` of the end.
    fn children(&mut self, scope: &Scope, depth: usize) -> Result<Vec<Node>, &'static str> {
        let mut children = Vec::new();
        loop {
            let end = self.rest.find('<').ok_or("an end tag")?;
            let (text, rest) = self.rest.split_at(end);
            self.rest = rest;
            if text.contains("]]>") {
                return Err("no end of a CDATA section");
            }
            if !text.is_empty() {
                children.push(Node::Text(unescape(text)?));
            }
            if self.take("</") {
                return Ok(children);
            }
            if self.rest.starts_with("<!") || self.rest.starts_with("<?") {
                return Err("no comment, CDATA section or instruction");
            }
            children.push(Node::Element(self.element(scope, depth + 1)?));
        }
    }

    /// Declarations of namespaces, and the other attributes as they are written.
    fn attributes(&mut self) -> Result<(Scope, Written<'a>), &'static str> {
        let (mut declarations, mut attributes) = (Scope::new(), Vec::new());
        loop {
            let spaced = self.space();
            if self.rest.starts_with(['/', '>']) {
                return Ok((declarations, attributes));
            }
            if !spaced || declarations.len() + attributes.len() == ATTRIBUTES_MAX {
                return Err("fewer attributes, with space between them");
            }
            let name = self.name()?;
            self.space();
            self.expect('=')?;
            self.space();
            let value = self.value()?;
            let declared = if name == "xmlns" { Some("") } else { name.strip_prefix("xmlns:") };
            let Some(prefix) = declared else {
                attributes.push((name, value));
                continue;
            };
            let is_new = lookup(&declarations, prefix).is_none();
            let is_reserved = prefix.starts_with("xml");
            if !is_new || is_reserved || (value.is_empty() && !prefix.is_empty()) {
                return Err("each prefix declared once, none reserved, none empty");
            }
            declarations.push((prefix.into(), value));
        }
    }

    fn value(&mut self) -> Result<String, &'static str> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.ok_or("a quoted value")?;
        let (value, rest) = self.rest[1..].split_once(quote).ok_or("a quoted value")?;
        self.rest = rest;
        if value.contains('<') {
            return Err("no `<` in a value");
        }
        // XML 1.0 section 3.3.3: white space that is not written as a reference becomes a space.
        unescape(&value.replace(['\t', '\n'], " "))
    }

    /// A name in ASCII, with one colon at most.
    fn name(&mut self) -> Result<&'a str, &'static str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        let end = self.rest.find(|c: char| !is_part(c)).ok_or("a name")?;
        let (name, rest) = self.rest.split_at(end);
        let begins = |part: &str| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if name.split(':').count() > 2 || !name.split(':').all(begins) {
            return Err("a name");
        }
        self.rest = rest;
        Ok(name)
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: char) -> Result<(), &'static str> {
        self.rest = self.rest.strip_prefix(token).ok_or("another mark-up character")?;
        Ok(())
    }

    fn space(&mut self) -> bool {
        let rest = self.rest.trim_start_matches([' ', '\t', '\n']);
        let skipped = rest.len() < self.rest.len();
        self.rest = rest;
        skipped
    }
}

fn resolve(written: Vec<(&str, String)>, scope: &Scope) -> Result<Vec<Attribute>, &'static str> {
    let mut attributes: Vec<Attribute> = Vec::with_capacity(written.len());
    for (name, value) in written {
        // `xml:` would be inherited by document subsets, and no manifest has one.
        let namespace = match prefix(name) {
            "" => "",
            prefix => lookup(scope, prefix).ok_or("declared prefixes")?,
        };
        if attributes.iter().any(|a| a.namespace == namespace && local(&a.name) == local(name)) {
            return Err("each attribute once");
        }
        attributes.push(Attribute { name: name.into(), namespace: namespace.into(), value });
    }
    Ok(attributes)
}

fn lookup<'s>(scope: &'s Scope, prefix: &str) -> Option<&'s str> {
    scope.iter().rev().find(|(known, _)| known == prefix).map(|(_, name)| name.as_str())
}

fn declare(scope: &mut Scope, prefix: &str, name: &str) {
    scope.retain(|(known, _)| known != prefix);
    scope.push((prefix.into(), name.into()));
}

fn prefix(name: &str) -> &str {
    name.split_once(':').map_or("", |(prefix, _)| prefix)
}

fn local(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, local)| local)
}

/// Text with its references replaced.
fn unescape(text: &str) -> Result<String, &'static str> {
    const WANTED: &str = "predefined and numeric references";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        let (reference, after) = after.split_once(';').ok_or(WANTED)?;
        out.push_str(before);
        out.push(match reference {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => numeric(reference).ok_or(WANTED)?,
        });
        rest = after;
    }
    out.push_str(rest);
    match out.chars().all(is_character) {
        true => Ok(out),
        false => Err("characters that XML allows"),
    }
}

fn numeric(reference: &str) -> Option<char> {
    let digits = reference.strip_prefix('#')?;
    let (digits, radix) = digits.strip_prefix('x').map_or((digits, 10), |hex| (hex, 16));
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    char::from_u32(u32::from_str_radix(digits, radix).ok().filter(|_| is_number)?)
}

/// XML 1.0 section 2.2.
fn is_character(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn quoted(out: &mut String, value: &str) {
    out.push_str("=\"");
    escape(out, value, true);
    out.push('"');
}

/// Canonical XML 1.1 section 2.3: other characters are escaped in values than in text.
fn escape(out: &mut String, text: &str, is_value: bool) {
    for c in text.chars() {
        match (c, is_value) {
            ('&', _) => out.push_str("&amp;"),
            ('<', _) => out.push_str("&lt;"),
            ('\r', _) => out.push_str("&#xD;"),
            ('>', false) => out.push_str("&gt;"),
            ('"', true) => out.push_str("&quot;"),
            ('\t', true) => out.push_str("&#x9;"),
            ('\n', true) => out.push_str("&#xA;"),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn canonical(text: &str) -> Result<String, &'static str> {
        parse(text).map(|root| root.canonical(&[]))
    }

    #[test]
    fn the_canonical_form_is_that_of_the_recommendation() {
        let cases = [
            ("<a/>", "<a></a>"),
            ("<a  b = 'x'   a=\"y\"/>", "<a a=\"y\" b=\"x\"></a>"),
            ("<?xml version=\"1.0\"?>\r\n<a>\r\n</a >\n", "<a>\n</a>"),
            ("<a b='\"&#9;&#xA;&amp;>'/>", "<a b=\"&quot;&#x9;&#xA;&amp;>\"></a>"),
            ("<a b='1\n2'>&gt;&#13;'\"</a>", "<a b=\"1 2\">&gt;&#xD;'\"</a>"),
            // Attributes go by the name of their namespace, those without one first.
            (
                "<a xmlns:y='urn:a' xmlns:x='urn:b' y:q='1' x:q='2' z='3'/>",
                "<a xmlns:x=\"urn:b\" xmlns:y=\"urn:a\" z=\"3\" y:q=\"1\" x:q=\"2\"></a>",
            ),
            // A declaration that says nothing new is left out.
            (
                "<a xmlns='urn:a'><b xmlns='urn:a'/><c xmlns=''><d xmlns=''/></c></a>",
                "<a xmlns=\"urn:a\"><b></b><c xmlns=\"\"><d></d></c></a>",
            ),
        ];
        for (text, wanted) in cases {
            assert_eq!(canonical(text).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn a_part_of_a_document_declares_what_it_inherits() {
        let root = parse("<a xmlns='urn:a' xmlns:p='urn:p'><p:b xmlns:q='urn:q'><c/></p:b></a>");
        let root = root.expect("well formed");
        let part = root.only("urn:p", "b").expect("there");
        assert_eq!(
            part.canonical(root.declarations()),
            "<p:b xmlns=\"urn:a\" xmlns:p=\"urn:p\" xmlns:q=\"urn:q\"><c></c></p:b>"
        );
    }

    #[test]
    fn namespaces_in_scope_are_bounded_over_all_levels() {
        let declared = |from: usize, count: usize| -> String {
            (from..from + count).map(|n| format!(" xmlns:n{n}='urn:{n}'")).collect()
        };
        let nested = |half: usize| {
            format!("<a{}><b{}><c/></b></a>", declared(0, half), declared(half, half))
        };
        assert!(canonical(&nested(NAMESPACES_MAX / 2)).is_ok());
        assert!(canonical(&nested(NAMESPACES_MAX / 2 + 1)).is_err());
    }

    #[test]
    fn all_that_a_manifest_does_not_need_is_refused() {
        let refused = [
            "",
            "a",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a><!-- c --></a>",
            "<a><![CDATA[x]]></a>",
            "<a><?pi?></a>",
            "<!DOCTYPE a><a/>",
            "<a b='1' b='2'/>",
            "<a b='1'c='2'/>",
            "<a b=1/>",
            "<a b='<'/>",
            "<p:a/>",
            "<a p:b='1'/>",
            "<a xml:lang='en'/>",
            "<a xmlns:xml='urn:x'/>",
            "<a xmlns:p=''/>",
            "<a xmlns:p='urn:p' xmlns:q='urn:p' p:x='1' q:x='2'/>",
            "<a>&nbsp;</a>",
            "<a>&#0;</a>",
            "<a>&#x110000;</a>",
            "<a>&#+65;</a>",
            "<a>]]></a>",
            "<a:b:c/>",
            "<1/>",
        ];
        for text in refused {
            assert!(canonical(text).is_err(), "{text}");
        }
        let deep = "<a>".repeat(20) + &"</a>".repeat(20);
        assert!(canonical(&deep).is_err());
    }
}
