package remote

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// search is a request for a part of an expansion.
type search struct {
	key  string
	page expansion.Page
	rest url.Values // the other parameters
	q    Request
	xml  bool // the answer is wanted in XML
}

// searchOf reads a request. It returns false for one that only the server can answer.
func searchOf(s *Server, q Request) (search, bool) {
	if !strings.HasSuffix(q.Path, "$expand") {
		return search{}, false
	}
	values, err := q.parameters()
	format := cmp.Or(values.Get("_format"), q.accept())
	x := search{rest: values, q: q, xml: strings.Contains(format, "xml")}
	if err != nil || x.xml == strings.Contains(format, "json") || values.Has("_pretty") {
		return search{}, false
	}
	x.page.Filter = strings.TrimSpace(values.Get("filter"))
	if !readNumber(values, "offset", &x.page.Offset) || !readNumber(values, "count", &x.page.Count) {
		return search{}, false
	}
	if !readChoice(values, "explainFilter", &x.page.ExplainFilter) {
		return search{}, false
	}
	for _, name := range []string{"filter", "offset", "count", "explainFilter", "_format"} {
		if len(values[name]) > 1 {
			return search{}, false
		}
		delete(values, name)
	}
	x.key = fmt.Sprintf("%p %s %s?%s %s", s, s.base, q.Path, values.Encode(), q.AcceptLanguage)
	return x, true
}

// readNumber reads a number, if it is there. It returns false if that is none.
func readNumber(values url.Values, name string, n **int) bool {
	if !values.Has(name) {
		return true
	}
	number, err := strconv.ParseUint(values.Get(name), 10, 31)
	if err != nil {
		return false
	}
	*n = new(int)
	**n = int(number)
	return true
}

// readChoice reads a boolean parameter, if it is there. It returns false if that is none.
func readChoice(values url.Values, name string, c *parameters.Choice) bool {
	switch values.Get(name) {
	case "true":
		*c = parameters.Yes
	case "false":
		*c = parameters.No
	default:
		return !values.Has(name)
	}
	return true
}

// isPart reports whether a page is not all of n entries.
func isPart(p expansion.Page, n int) bool {
	return p.Offset != nil && *p.Offset > 0 || p.Count != nil && *p.Count < n
}

var errNotSimple = errors.New("a parameter is not of a primitive type")

// parameters returns the parameters of a request. Beside an error, for those that no query string can hold, it returns the
// others.
func (q *Request) parameters() (url.Values, error) {
	values, err := url.ParseQuery(q.Query)
	if err != nil || q.method() != http.MethodPost {
		return values, err
	}
	body := q.Body
	switch kind, _, _ := mime.ParseMediaType(q.ContentType); {
	case len(values) > 0:
		return values, errNotSimple
	case kind == "application/x-www-form-urlencoded":
		return url.ParseQuery(string(body))
	case strings.HasSuffix(kind, "xml"):
		if body, err = fhirxml.AppendJSON(nil, body); err != nil {
			return values, err
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
	var failed error
	for _, p := range posted.Parameter {
		failed = cmp.Or(addParameter(values, p), failed)
	}
	return failed
}

func addParameter(values url.Values, p map[string]jsontext.Value) error {
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
	return nil
}
