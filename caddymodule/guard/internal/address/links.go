package address

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// LinkSealer returns the Bundle.link for clients that replaces the FHIR server's links.
type LinkSealer func(links message.Links) (message.Links, error)

// LinkReplacer replaces Bundle.link in JSON text that arrives in pieces. The result does not depend on where the text is split.
// The rest of the text is neither changed nor validated.
type LinkReplacer struct {
	Seal LinkSealer // required

	isDone    bool // Bundle.link has been replaced
	depth     int
	inString  bool
	isEscaped bool   // the last character was a backslash
	isName    bool   // the next string of the root object is a member name
	name      []byte // current member name of the root object, as JSON
	links     []byte // part of Bundle.link received so far; nil outside of it
}

// maxLinksSize is the maximum size of Bundle.link in bytes.
const maxLinksSize = 1 << 18

// ErrInvalidLinks is the cause of a 502 if links cannot be rewritten.
var ErrInvalidLinks = errors.New("FHIR server's links cannot be rewritten")

// Append appends a piece of the text to out, with Bundle.link replaced. It returns an error if it cannot parse or seal the
// links.
func (f *LinkReplacer) Append(out, piece []byte) ([]byte, error) {
	at := 0 // everything before at has been appended to out or links
	for i := 0; i < len(piece) && !f.isDone; i++ {
		if f.inString {
			i = f.continueString(piece, i)
			continue
		}
		switch c := piece[i]; c {
		case '"':
			f.inString = true
			if f.isName && f.depth == 1 {
				f.name = append(f.name[:0], '"')
			}
		case '{', '[':
			if f.depth++; f.depth == 1 {
				f.isName = c == '{'
			} else if c == '[' && f.depth == 2 && f.isLink() {
				out = append(out, piece[at:i]...)
				at, f.links = i, []byte{}
			}
		case '}', ']':
			if f.depth--; f.depth == 1 && f.links != nil {
				sealed, err := f.sealLinks(append(f.links, piece[at:i+1]...))
				if err != nil {
					return out, err
				}
				out, at, f.links = append(out, sealed...), i+1, nil
			}
		case ',', ':':
			if f.depth == 1 {
				f.isName = c == ','
			}
		}
	}
	if f.links == nil {
		return append(out, piece[at:]...), nil
	}
	if f.links = append(f.links, piece[at:]...); len(f.links) > maxLinksSize {
		return out, fmt.Errorf("%w: Bundle.link is larger than %d bytes", ErrInvalidLinks, maxLinksSize)
	}
	return out, nil
}

// continueString continues a string and returns the offset of its last character in the piece.
func (f *LinkReplacer) continueString(piece []byte, from int) int {
	i := from
	for ; i < len(piece) && f.inString; i++ {
		switch {
		case f.isEscaped:
			f.isEscaped = false
		case piece[i] == '\\':
			f.isEscaped = true
		case piece[i] == '"':
			f.inString = false
		}
	}
	if f.isName && f.depth == 1 && len(f.name)+i-from <= maxNameLength {
		f.name = append(f.name, piece[from:i]...)
	}
	return i - 1
}

// CheckJSON returns an error if a text does not begin with an object or array in UTF-8.
func CheckJSON(text []byte) error {
	if text = bytes.TrimLeft(text, " \t\r\n"); len(text) > 0 && (text[0] != '{' && text[0] != '[' || len(text) > 1 && text[1] == 0) {
		return fmt.Errorf("%w: body is not a JSON object or array in UTF-8", ErrInvalidLinks)
	}
	return nil
}

// maxNameLength is the maximum length of the name "link" in bytes, with quotation marks and all letters escaped.
const maxNameLength = 26

// isLink reports whether the current member of the root object is link.
func (f *LinkReplacer) isLink() bool {
	var name string
	return json.Unmarshal(f.name, &name) == nil && name == "link"
}

// sealLinks returns the links for clients. A member link of another resource has elements without relation and url, which stay
// unchanged.
func (f *LinkReplacer) sealLinks(text []byte) ([]byte, error) {
	var links message.Links
	if err := json.Unmarshal(text, &links); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidLinks, err)
	}
	if len(links) == 0 || links[0] == (message.Link{}) {
		return text, nil
	}
	f.isDone = true
	sealed, err := f.Seal(links)
	if err != nil {
		return nil, err
	}
	return sealed.Append(nil), nil
}

// ReplaceXMLLinks replaces Bundle.link at the beginning of an XML text; FHIR puts it before the entries. Other resources stay
// unchanged. If seal is nil, only the encoding is checked.
func ReplaceXMLLinks(text []byte, seal LinkSealer) ([]byte, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(label string, _ io.Reader) (io.Reader, error) {
		return nil, fmt.Errorf("%w: XML encoding is %q, not UTF-8", ErrInvalidLinks, label)
	}
	x := xmlLinkParser{decoder: d}
	if err := x.read(seal != nil); err != nil {
		return nil, err
	}
	if len(x.links) == 0 {
		return text, nil
	}
	sealed, err := seal(x.links)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(text[:x.from])
	for _, l := range sealed {
		b.WriteString(`<link xmlns="http://hl7.org/fhir"><relation value="`)
		_ = xml.EscapeText(&b, []byte(l.Relation)) // bytes.Buffer never fails
		b.WriteString(`"/><url value="`)
		_ = xml.EscapeText(&b, []byte(l.URL))
		b.WriteString(`"/></link>`)
	}
	b.Write(text[x.to:])
	return b.Bytes(), nil
}

// xmlLinkParser parses the links of a Bundle.
type xmlLinkParser struct {
	decoder  *xml.Decoder
	links    message.Links
	from, to int64 // range of all links in the text
}

func (x *xmlLinkParser) read(parseLinks bool) error {
	for depth := 0; ; {
		before := x.decoder.InputOffset()
		token, err := x.decoder.Token()
		if err != nil {
			return fmt.Errorf("%w: parsing XML: %w", ErrInvalidLinks, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			switch {
			case depth == 0 && (token.Name.Local != "Bundle" || !parseLinks), depth == 1 && token.Name.Local == "entry":
				return nil
			case depth == 1 && token.Name.Local == "link":
				if err := x.readLink(&token, before); err != nil {
					return err
				}
				continue
			}
			depth++
		case xml.EndElement:
			if depth--; depth == 0 {
				return nil
			}
		}
	}
}

// readLink parses one link that begins at offset from.
func (x *xmlLinkParser) readLink(start *xml.StartElement, from int64) error {
	type value struct {
		Value string `xml:"value,attr"`
	}
	var l struct {
		Relation value `xml:"relation"`
		URL      value `xml:"url"`
	}
	if err := x.decoder.DecodeElement(&l, start); err != nil {
		return fmt.Errorf("%w: parsing XML: %w", ErrInvalidLinks, err)
	}
	if len(x.links) == 0 {
		x.from = from
	}
	x.to = x.decoder.InputOffset()
	x.links = append(x.links, message.Link{Relation: l.Relation.Value, URL: l.URL.Value})
	return nil
}

// EntryAddress returns the first fullUrl or response.location of an entry at the beginning of a Bundle, because the FHIR server
// generates these. Similar members of a resource may come from a client. It returns "" if there is none.
func EntryAddress(format message.Format, text []byte) string {
	if format == message.XML {
		return entryAddressXML(xml.NewDecoder(bytes.NewReader(text)))
	}
	return entryAddressJSON(rawjson.NewCursor(text).AllowDuplicates())
}

// errStopSearch ends the search.
var errStopSearch = errors.New("found")

func entryAddressJSON(c *rawjson.Cursor) (found string) {
	text := func() error {
		if c.Kind() == rawjson.String { // other kinds of values are not addresses
			var err error
			if found, err = c.Text(); err == nil && found != "" {
				err = errStopSearch
			}
			return err
		}
		return c.Skip()
	}
	response := func(name []byte) error {
		if string(name) == "location" {
			return text()
		}
		return c.Skip()
	}
	entry := func(name []byte) error {
		switch {
		case string(name) == "fullUrl":
			return text()
		case string(name) == "response" && c.Kind() == rawjson.Object:
			return c.Object(response)
		}
		return c.Skip()
	}
	_ = c.Object(func(name []byte) error { // a truncated entry has no address
		if string(name) != "entry" {
			return c.Skip()
		}
		return cmp.Or(c.Array(func() error { return c.Object(entry) }), errStopSearch)
	})
	return found
}

func entryAddressXML(d *xml.Decoder) string {
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch start.Name.Local {
		case "Bundle", "entry", "response": // continue with their content
		case "fullUrl", "location":
			for _, a := range start.Attr {
				if a.Name.Local == "value" {
					return a.Value
				}
			}
		default:
			if d.Skip() != nil {
				return ""
			}
		}
	}
}
