package address

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// ReplaceXMLLinks replaces Bundle.link in the beginning of an XML text. FHIR has the links before the entries. What is no
// Bundle stays. Without seal, only the encoding is checked.
func ReplaceXMLLinks(text []byte, seal SealLinks) ([]byte, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(label string, _ io.Reader) (io.Reader, error) {
		return nil, fmt.Errorf("%w: the XML text is in %q, not in UTF-8", ErrLinks, label)
	}
	x := xmlLinks{d: d}
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
		_ = xml.EscapeText(&b, []byte(l.Relation)) // it never fails
		b.WriteString(`"/><url value="`)
		_ = xml.EscapeText(&b, []byte(l.URL))
		b.WriteString(`"/></link>`)
	}
	b.Write(text[x.to:])
	return b.Bytes(), nil
}

// xmlLinks reads the links of a Bundle.
type xmlLinks struct {
	d        *xml.Decoder
	links    message.Links
	from, to int64 // of all links in the text
}

func (x *xmlLinks) read(wanted bool) error {
	for depth := 0; ; {
		before := x.d.InputOffset()
		token, err := x.d.Token()
		switch {
		case err != nil:
			return fmt.Errorf("%w: XML: %w", ErrLinks, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			switch {
			case depth == 0 && (token.Name.Local != "Bundle" || !wanted), depth == 1 && token.Name.Local == "entry":
				return nil
			case depth == 1 && token.Name.Local == "link":
				if err := x.link(&token, before); err != nil {
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

// link reads one link, which begins at an offset.
func (x *xmlLinks) link(start *xml.StartElement, from int64) error {
	type value struct {
		Value string `xml:"value,attr"`
	}
	var l struct {
		Relation value `xml:"relation"`
		URL      value `xml:"url"`
	}
	if err := x.d.DecodeElement(&l, start); err != nil {
		return fmt.Errorf("%w: XML: %w", ErrLinks, err)
	}
	if len(x.links) == 0 {
		x.from = from
	}
	x.to = x.d.InputOffset()
	x.links = append(x.links, message.Link{Relation: l.Relation.Value, URL: l.URL.Value})
	return nil
}
