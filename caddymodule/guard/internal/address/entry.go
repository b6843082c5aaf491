package address

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// OfEntry returns the first fullUrl or response.location of an entry in the beginning of a Bundle: addresses that the FHIR
// server writes. What looks like one inside of a resource may be a client's. Empty if there is none.
func OfEntry(format message.Format, text []byte) string {
	if format == message.XML {
		return ofEntryXML(xml.NewDecoder(bytes.NewReader(text)))
	}
	return ofEntryJSON(rawjson.NewCursor(text).AllowDuplicates())
}

// errFound stops reading once nothing more can be found.
var errFound = errors.New("found")

func ofEntryJSON(c *rawjson.Cursor) (found string) {
	text := func() error {
		if c.Kind() == rawjson.String { // other kinds of values are no addresses
			var err error
			if found, err = c.Text(); err == nil && found != "" {
				err = errFound
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
		return cmp.Or(c.Array(func() error { return c.Object(entry) }), errFound)
	})
	return found
}

func ofEntryXML(d *xml.Decoder) string {
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
		case "Bundle", "entry", "response": // what they contain follows
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
