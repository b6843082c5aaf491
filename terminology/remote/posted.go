package remote

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

// errNotSimple is the error for Parameters that no query string can say.
var errNotSimple = errors.New("a parameter is not of a primitive type")

// parameters returns the parameters of a question. It fails on those that only a body can say.
func (q *Question) parameters() (url.Values, error) {
	values, err := url.ParseQuery(q.Query)
	if err != nil || q.method() != http.MethodPost {
		return values, err
	}
	body := q.Body
	switch kind, _, _ := mime.ParseMediaType(q.ContentType); {
	case len(values) > 0:
		return nil, errNotSimple
	case kind == "application/x-www-form-urlencoded":
		return url.ParseQuery(string(body))
	case strings.HasSuffix(kind, "xml"):
		if body, err = fhirxml.AppendJSON(nil, body); err != nil {
			return nil, err
		}
	}
	return values, addPosted(values, body)
}

// addPosted adds the parameters of a resource Parameters.
func addPosted(values url.Values, body []byte) error {
	var posted struct {
		ResourceType string                      `json:"resourceType"`
		Parameter    []map[string]jsontext.Value `json:"parameter"`
	}
	if err := json.Unmarshal(body, &posted); err != nil || posted.ResourceType != "Parameters" {
		return errors.Join(err, errNotSimple)
	}
	for _, p := range posted.Parameter {
		var name string
		if err := json.Unmarshal(p["name"], &name); err != nil || len(p) != 2 {
			return errors.Join(err, errNotSimple)
		}
		delete(p, "name")
		for member, value := range p {
			text := string(value)
			if kind := value.Kind(); kind == '{' || kind == '[' || !strings.HasPrefix(member, "value") {
				return errNotSimple
			} else if kind == '"' {
				if err := json.Unmarshal(value, &text); err != nil {
					return err
				}
			}
			values.Add(name, text)
		}
	}
	return nil
}
