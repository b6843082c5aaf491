package enforce

import (
	"bytes"
	"encoding/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/rawjson"
)

// span is a part of a text.
type span struct{ from, to int }

// findLinks finds the value of Bundle.link; nil if the text is no Bundle, or has none.
func findLinks(text []byte) (at span, links []link) {
	c := rawjson.NewCursor(text).AllowDuplicates()
	isBundle := false
	err := c.Object(func(name []byte) (err error) {
		switch {
		case string(name) == "resourceType" && c.Kind() == rawjson.String:
			var kind string
			kind, err = c.Text()
			isBundle = kind == "Bundle"
		case string(name) == "link" && c.Kind() == rawjson.Array:
			at.from = c.Offset()
			var raw []byte
			if raw, err = c.Raw(); err == nil {
				at.to = c.Offset()
				err = json.Unmarshal(raw, &links)
			}
		default:
			err = c.Skip()
		}
		return err
	})
	if err != nil || !isBundle {
		return span{}, nil
	}
	return at, links
}

// linked is the URL of the link with a relation; empty if there is none.
func linked(links []link, relation string) string {
	for _, l := range links {
		if l.Relation == relation {
			return l.URL
		}
	}
	return ""
}

// writeLinks writes the value of Bundle.link. FHIR has no empty arrays, and a Bundle without links has no member for
// them; here the member is there already, so it keeps one.
func writeLinks(out *bytes.Buffer, links []link) {
	out.WriteByte('[')
	for i, l := range links {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(`{"relation":` + quoted(l.Relation) + `,"url":` + quoted(l.URL) + `}`)
	}
	out.WriteByte(']')
}
