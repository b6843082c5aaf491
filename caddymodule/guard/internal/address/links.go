package address

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// SealLinks returns the Bundle.link for clients in place of the FHIR server's.
type SealLinks func(links message.Links) (message.Links, error)

// LinkFinder replaces Bundle.link in a JSON text that arrives in pieces. How the text is cut into pieces makes no
// difference. All else stays, and is not checked.
type LinkFinder struct {
	Seal SealLinks // required

	done     bool // Bundle.link was replaced
	depth    int
	inString bool
	escaped  bool   // the last character was a backslash
	isName   bool   // the next string of the root object is the name of a member
	name     []byte // of the current member of the root object, as JSON
	links    []byte // of Bundle.link, as far as it has arrived; nil outside of it
}

// maxLinks is the size of the largest Bundle.link that is read, in bytes.
const maxLinks = 1 << 18

// ErrLinks is the cause of a 502 for links that cannot be rewritten.
var ErrLinks = errors.New("links of the FHIR server cannot be rewritten")

// Append appends a piece of the text to out, with Bundle.link replaced. It fails if that cannot be read or sealed.
func (f *LinkFinder) Append(out, piece []byte) ([]byte, error) {
	at := 0 // what precedes is appended, or part of links
	for i := 0; i < len(piece) && !f.done; i++ {
		if f.inString {
			i = f.string(piece, i)
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
				sealed, err := f.sealed(append(f.links, piece[at:i+1]...))
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
	if f.links = append(f.links, piece[at:]...); len(f.links) > maxLinks {
		return out, fmt.Errorf("%w: Bundle.link is larger than %d bytes", ErrLinks, maxLinks)
	}
	return out, nil
}

// string goes on in a string, and returns the offset of its last character in the piece.
func (f *LinkFinder) string(piece []byte, from int) int {
	i := from
	for ; i < len(piece) && f.inString; i++ {
		switch {
		case f.escaped:
			f.escaped = false
		case piece[i] == '\\':
			f.escaped = true
		case piece[i] == '"':
			f.inString = false
		}
	}
	if f.isName && f.depth == 1 && len(f.name)+i-from <= maxName {
		f.name = append(f.name, piece[from:i]...)
	}
	return i - 1
}

// CheckJSON rejects a text that does not begin as an object or array in UTF-8 does.
func CheckJSON(text []byte) error {
	if text = bytes.TrimLeft(text, " \t\r\n"); len(text) > 0 && (text[0] != '{' && text[0] != '[' || len(text) > 1 && text[1] == 0) {
		return fmt.Errorf("%w: no JSON object in UTF-8", ErrLinks)
	}
	return nil
}

// maxName is the length of the longest name that may be link, with all letters escaped and quotation marks.
const maxName = 26

// isLink reports whether the current member of the root object is link.
func (f *LinkFinder) isLink() bool {
	var name string
	return json.Unmarshal(f.name, &name) == nil && name == "link"
}

// sealed returns the links for clients. Other resources than Bundles have a link, too, whose elements have neither
// relation nor url: it stays.
func (f *LinkFinder) sealed(text []byte) ([]byte, error) {
	var links message.Links
	if err := json.Unmarshal(text, &links); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLinks, err)
	}
	if len(links) == 0 || links[0] == (message.Link{}) {
		return text, nil
	}
	f.done = true
	sealed, err := f.Seal(links)
	if err != nil {
		return nil, err
	}
	return sealed.Append(nil), nil
}
