package message

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// Links is the value of Bundle.link.
type Links []Link

// Link is a Bundle.link.
type Link struct {
	Relation string `json:"relation"` // self, next, … (RFC 8288)
	URL      string `json:"url"`      // where it leads
}

// Span is a part of a text.
type Span struct {
	From, To int // of its first byte, and of the one behind its last
}

// FindLinks finds the value of Bundle.link; nil if the text is no Bundle, or has none. Entries are read only if it could
// stand behind them.
func FindLinks(text []byte) (Span, Links) {
	r := linkReader{c: rawjson.NewCursor(text).AllowDuplicates(), text: text}
	if err := r.c.Object(r.member); err != nil && !errors.Is(err, errNoMore) || !r.isBundle {
		return Span{}, nil
	}
	return r.at, r.links
}

// errNoMore ends the reading of a Bundle of which nothing else is wanted.
var errNoMore = errors.New("no more links")

// linkReader reads a Bundle for its links.
type linkReader struct {
	c        *rawjson.Cursor
	text     []byte
	isBundle bool
	at       Span
	links    Links
}

func (r *linkReader) member(name []byte) error {
	switch kind := r.c.Kind(); {
	case string(name) == "resourceType" && kind == rawjson.String:
		said, err := r.c.Bytes()
		r.isBundle = string(said) == "Bundle"
		return err
	case string(name) == "link" && kind == rawjson.Array:
		r.at.From = r.c.Offset()
		raw, err := r.c.Raw()
		if err != nil {
			return err
		}
		r.at.To = r.c.Offset()
		return json.Unmarshal(raw, &r.links)
	case string(name) == "entry" && r.isBundle && !mayNameLink(r.text[r.c.Offset():]):
		return errNoMore
	}
	return r.c.Skip()
}

// mayNameLink reports whether an object in a text could have a member with the name link, be it written with escapes.
// What it looks for is rare, so it is far quicker than reading the text.
func mayNameLink(text []byte) bool {
	if bytes.Contains(text, []byte(`\u006`)) {
		return true // as the escape of each of its letters begins
	}
	for at := 0; ; {
		found := bytes.Index(text[at:], []byte(`k"`))
		if found < 0 {
			return false
		}
		if at += found + 2; bytes.HasSuffix(text[:at], []byte(`"link"`)) {
			return true
		}
	}
}

// To is the URL of the link with a relation; empty if there is none.
func (all Links) To(relation string) string {
	for _, l := range all {
		if l.Relation == relation {
			return l.URL
		}
	}
	return ""
}

// Append writes the value of Bundle.link. FHIR has no empty arrays: a Bundle that has none has no such member.
func (all Links) Append(out []byte) []byte {
	out = append(out, '[')
	for i, l := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendQuoted(append(out, `{"relation":`...), l.Relation)
		out = appendQuoted(append(out, `,"url":`...), l.URL)
		out = append(out, '}')
	}
	return append(out, ']')
}
