package address

import (
	"bytes"
	"encoding/json"
	"encoding/xml"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// OfEntry returns the first fullUrl or response.location of an entry in the beginning of a Bundle: addresses that the FHIR
// server writes. What looks like one inside of a resource may be a client's. Empty if there is none.
func OfEntry(format message.Format, text []byte) string {
	if format == message.XML {
		return ofEntryXML(xml.NewDecoder(bytes.NewReader(text)))
	}
	return ofEntryJSON(json.NewDecoder(bytes.NewReader(text)))
}

func ofEntryJSON(d *json.Decoder) (found string) {
	eachMember(d, func(name string) bool {
		if name != "entry" {
			return skip(d)
		}
		if !opens(d, '[') {
			return false
		}
		for d.More() {
			ok := eachMember(d, func(name string) bool {
				var response struct{ Location string }
				switch name {
				case "fullUrl":
					_ = d.Decode(&found) // what is no text is no address
				case "response":
					_ = d.Decode(&response)
					found = response.Location
				default:
					return skip(d)
				}
				return found == ""
			})
			if !ok {
				return false
			}
		}
		return false
	})
	return found
}

// eachMember has the value of each member of the object that follows read. It reports whether the object was read to its end.
func eachMember(d *json.Decoder, read func(name string) bool) bool {
	if !opens(d, '{') {
		return false
	}
	for d.More() {
		token, err := d.Token()
		if name, ok := token.(string); err != nil || !ok || !read(name) {
			return false
		}
	}
	return opens(d, '}')
}

func opens(d *json.Decoder, delimiter json.Delim) bool {
	token, err := d.Token()
	return err == nil && token == delimiter
}

func skip(d *json.Decoder) bool {
	var value json.RawMessage
	return d.Decode(&value) == nil
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
