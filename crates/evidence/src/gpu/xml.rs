//! The XML that reference manifests are written in, and its canonical form.
//!
//! The reader is `roxmltree`, narrowed to what a manifest needs: elements, attributes, text, predefined and numeric
//! references, namespaces. Comments, CDATA, processing instructions and document types are refused: none occurs in a
//! manifest, and each has been a way to show one document to the eye and another to the signature. What is read is the
//! very tree whose canonical form is hashed.

use alloc::{string::String, vec::Vec};

use roxmltree::{Attribute, Document, NS_XML_URI, Namespace, Node, ParsingOptions};

/// Deepest nesting; a manifest has six levels.
const DEPTH_MAX: usize = 16;
/// The largest number of elements in one document; a manifest with 64 measurements has 85.
const ELEMENTS_MAX: usize = 2048;
/// The largest number of elements and texts in one document.
const NODES_MAX: u32 = 4096;
/// The largest number of attributes and namespace declarations of one element; a manifest has at most eleven.
const ATTRIBUTES_MAX: usize = 64;
/// The largest number of namespaces in scope of one element; a manifest has at most eight.
/// The canonical form compares them pair by pair for every element.
const NAMESPACES_MAX: usize = 32;
/// The largest number of namespace declarations in one document, which bounds the reader's work.
const DECLARATIONS_MAX: usize = 256;

/// Returns the document without its XML declaration and the white space around it, its lines ended by single line
/// feeds (XML 1.0 section 2.11).
pub(super) fn normalise(text: &str) -> Result<String, &'static str> {
    let mut text = text.trim_ascii();
    if let Some(declaration) = text.strip_prefix("<?xml ") {
        let (_, after) = declaration.split_once("?>").ok_or("an XML declaration")?;
        text = after.trim_ascii_start();
    }
    Ok(text.replace("\r\n", "\n").replace('\r', "\n"))
}

/// Reads a document that [`normalise`] returned; the error names what was wanted.
pub(super) fn parse(text: &str) -> Result<Document<'_>, &'static str> {
    if !text.starts_with('<') {
        return Err("an element");
    }
    if text.contains("<!") || text.contains("<?") {
        return Err("no comment, CDATA section, document type or instruction");
    }
    // The reader drops the colon of `</:a>`, takes `:xmlns` and `p:xmlns` for declarations of the default namespace,
    // and drops a declaration of `xml` with its own namespace.
    if ["</:", ":xmlns", "xmlns:xml"].iter().any(|odd| text.contains(odd)) {
        return Err("no empty prefix, no `:xmlns`, no declaration of a reserved prefix");
    }
    // Counted beforehand, because the reader bounds neither the depth nor the namespaces in scope, and every element
    // that declares one costs it the square of those that it inherits.
    if text.matches("xmlns").count() > DECLARATIONS_MAX {
        return Err("fewer namespaces");
    }
    if text.split('<').skip(1).filter(|part| !part.starts_with('/')).count() > ELEMENTS_MAX {
        return Err("fewer elements");
    }
    // Counted beforehand, because the reader compares the names of one element's attributes pair by pair.
    if text
        .split('<')
        .any(|part| part.bytes().filter(|byte| *byte == b'=').count() > ATTRIBUTES_MAX)
    {
        return Err("fewer attributes");
    }
    // The reader takes a reference to a number that is not a character for U+FFFD.
    if !text.split("&#").skip(1).all(|rest| is_character(rest.split(';').next())) {
        return Err("references to characters");
    }
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|_| "well-formed XML")?;
    check_element(document.root_element(), DEPTH_MAX)?;
    Ok(document)
}

/// Whether a numeric reference, without its `&#` and `;`, names a character.
fn is_character(reference: Option<&str>) -> bool {
    let reference = reference.unwrap_or_default();
    let number = match reference.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => reference.parse(),
    };
    number.is_ok_and(|number| char::from_u32(number).is_some())
}

/// Refuses what the reader accepts and a manifest does not need.
fn check_element(element: Node<'_, '_>, levels: usize) -> Result<(), &'static str> {
    if levels == 0 {
        return Err("fewer levels");
    }
    if element.namespaces().len() > NAMESPACES_MAX {
        return Err("fewer namespaces");
    }
    let is_usable = |it: &Namespace<'_>| {
        it.name().is_none_or(|prefix| {
            prefix.is_ascii() && !prefix.starts_with("xml") && !it.uri().is_empty()
        })
    };
    // The reader compares prefixes with each other, and not two declarations of the default.
    let defaults = element.namespaces().filter(|it| it.name().is_none()).count();
    if defaults > 1 || !element.namespaces().all(is_usable) {
        return Err("each prefix declared once, none reserved, none empty");
    }
    // `xml:` would be inherited by document subsets, and no manifest has one.
    let is_name = |name: &str| name.is_ascii() && !name.starts_with(':');
    let is_usable = |it: Attribute<'_, '_>| {
        it.namespace() != Some(NS_XML_URI) && is_name(attribute_name(element, &it))
    };
    if !is_name(element_name(element)) || !element.attributes().all(is_usable) {
        return Err("names in ASCII, none of `xml:`");
    }
    child_elements(element).try_for_each(|child| check_element(child, levels - 1))
}

/// The value of the attribute with this name and without a namespace.
pub(super) fn attribute<'a>(element: Node<'a, '_>, name: &str) -> Option<&'a str> {
    // `Node::attribute` would take one of any namespace.
    let mut attributes = element.attributes();
    let found = attributes.find(|it| it.namespace().is_none() && it.name() == name);
    found.map(|attribute| attribute.value())
}

/// The children of an element that are elements.
pub(super) fn child_elements<'a, 't>(element: Node<'a, 't>) -> impl Iterator<Item = Node<'a, 't>> {
    element.children().filter(Node::is_element)
}

/// The child element with this name, if there is exactly one.
pub(super) fn only_child<'a, 't>(
    element: Node<'a, 't>,
    namespace: &str,
    name: &str,
) -> Option<Node<'a, 't>> {
    let mut children =
        child_elements(element).filter(|child| child.has_tag_name((namespace, name)));
    let first = children.next()?;
    children.next().is_none().then_some(first)
}

/// The text of an element that holds nothing else.
pub(super) fn only_text<'a>(element: Node<'a, '_>) -> Option<&'a str> {
    let mut children = element.children();
    let text = children.next().filter(Node::is_text)?.text();
    children.next().is_none().then_some(text)?
}

/// Canonical XML 1.1 without comments (W3C, 2008) of `apex` as the root of a document subset.
///
/// `left_out` is an element that is not part of the subset: the enveloped-signature transform when it is the signature.
pub(super) fn canonicalise(apex: Node<'_, '_>, left_out: Option<Node<'_, '_>>) -> String {
    let mut out = String::new();
    write_element(&mut out, apex, None, left_out);
    out
}

/// Writes one element; `parent` is the element above it, if that was written.
fn write_element(
    out: &mut String,
    element: Node<'_, '_>,
    parent: Option<Node<'_, '_>>,
    left_out: Option<Node<'_, '_>>,
) {
    let name = element_name(element);
    out.push('<');
    out.push_str(name);
    let is_new = |it: &&Namespace<'_>| {
        let above = parent.and_then(|parent| parent.lookup_namespace_uri(it.name()));
        above.unwrap_or_default() != it.uri()
    };
    let mut namespaces: Vec<_> = element.namespaces().filter(is_new).collect();
    namespaces.sort_by_key(|namespace| namespace.name());
    for namespace in namespaces {
        out.push_str(if namespace.name().is_none() { " xmlns" } else { " xmlns:" });
        out.push_str(namespace.name().unwrap_or_default());
        write_value(out, namespace.uri());
    }
    let mut attributes: Vec<_> = element.attributes().collect();
    attributes.sort_by_key(|attribute| (attribute.namespace(), attribute.name()));
    for attribute in attributes {
        out.push(' ');
        out.push_str(attribute_name(element, &attribute));
        write_value(out, attribute.value());
    }
    out.push('>');
    for child in element.children().filter(|child| Some(*child) != left_out) {
        match child.text() {
            Some(text) if child.is_text() => escape(out, text, false),
            _ => write_element(out, child, Some(element), left_out),
        }
    }
    out.push_str("</");
    out.push_str(name);
    out.push('>');
}

/// An element's name as it is written: `prefix:local` or `local`.
fn element_name<'t>(element: Node<'_, 't>) -> &'t str {
    let text = &element.document().input_text()[element.range().start + 1..];
    let is_end = |c: char| matches!(c, '>' | '/' | ' ' | '\t' | '\n');
    text.split(is_end).next().unwrap_or_default()
}

/// An attribute's name as it is written.
fn attribute_name<'t>(element: Node<'_, 't>, attribute: &Attribute<'_, '_>) -> &'t str {
    &element.document().input_text()[attribute.range_qname()]
}

fn write_value(out: &mut String, value: &str) {
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

    fn canonical_of(text: &str) -> Result<String, &'static str> {
        let text = normalise(text)?;
        parse(&text).map(|document| canonicalise(document.root_element(), None))
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
            assert_eq!(canonical_of(text).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn a_part_of_a_document_declares_what_it_inherits() {
        let text = "<a xmlns='urn:a' xmlns:p='urn:p'><p:b xmlns:q='urn:q'><c/></p:b></a>";
        let document = parse(text).expect("well formed");
        let part = only_child(document.root_element(), "urn:p", "b").expect("there");
        assert_eq!(
            canonicalise(part, None),
            "<p:b xmlns=\"urn:a\" xmlns:p=\"urn:p\" xmlns:q=\"urn:q\"><c></c></p:b>"
        );
    }

    #[test]
    fn a_child_that_is_left_out_leaves_the_text_around_it() {
        let document = parse("<a>1<b/>2<c/>3</a>").expect("well formed");
        let last = document.root_element().last_element_child();
        assert_eq!(canonicalise(document.root_element(), last), "<a>1<b></b>23</a>");
    }

    #[test]
    fn elements_and_declarations_are_bounded_over_the_whole_document() {
        let elements = |count: usize| {
            canonical_of(&format!("<a>{}</a>", "<b/>".repeat(count - 1))).map(|_| ())
        };
        assert_eq!(elements(ELEMENTS_MAX), Ok(()));
        assert_eq!(elements(ELEMENTS_MAX + 1), Err("fewer elements"));
        let declarations = |count: usize| {
            canonical_of(&format!("<a>{}</a>", "<b xmlns=''/>".repeat(count))).map(|_| ())
        };
        assert_eq!(declarations(DECLARATIONS_MAX), Ok(()));
        assert_eq!(declarations(DECLARATIONS_MAX + 1), Err("fewer namespaces"));
    }

    #[test]
    fn attributes_of_one_element_are_bounded() {
        let with = |count: usize| {
            let attributes: String = (0..count).map(|n| format!(" a{n}='>'")).collect();
            canonical_of(&format!("<a{attributes}/>"))
        };
        assert!(with(ATTRIBUTES_MAX).is_ok());
        assert!(with(ATTRIBUTES_MAX + 1).is_err());
    }

    #[test]
    fn namespaces_in_scope_are_bounded_over_all_levels() {
        let declared = |from: usize, count: usize| -> String {
            (from..from + count).map(|n| format!(" xmlns:n{n}='urn:{n}'")).collect()
        };
        let nested = |half: usize| {
            format!("<a{}><b{}><c/></b></a>", declared(0, half), declared(half, half))
        };
        assert!(canonical_of(&nested(NAMESPACES_MAX / 2)).is_ok());
        assert!(canonical_of(&nested(NAMESPACES_MAX / 2 + 1)).is_err());
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
            "<:a/>",
            "<a></:a>",
            "<a :xmlns='urn:a'/>",
            "<a p:xmlns='urn:a'/>",
            "<a xmlns:p='urn:p' p:xmlns='urn:a'/>",
            "<a xmlns:xml='http://www.w3.org/XML/1998/namespace'/>",
            "<a xmlns='urn:a' xmlns='urn:b'/>",
            "<a xmlns:\u{e9}='urn:a'/>",
            "<a :b='1'/>",
            "<\u{e9}/>",
            "<a \u{e9}='1'/>",
            "\u{feff}<a/>",
        ];
        for text in refused {
            assert!(canonical_of(text).is_err(), "{text}");
        }
        let deep = "<a>".repeat(20) + &"</a>".repeat(20);
        assert!(canonical_of(&deep).is_err());
    }
}
