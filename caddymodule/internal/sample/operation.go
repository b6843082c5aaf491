package sample

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// operate answers an operation. A missing resource is 404 even for operations that are not implemented: "not implemented"
// would blame the server for a mistyped address.
func operate(s *Store, q request) (reply, error) {
	switch {
	case q.Operation == "$everything" && q.Type == "Patient" && q.ID != "" && q.method != http.MethodPost:
		return everything(s, q)
	case q.Operation == "$export" && q.method == http.MethodGet:
		return export(s, q)
	}
	if err := s.checkTarget(q); err != nil {
		return reply{}, err
	}
	return reply{}, notImplemented(q)
}

// checkTarget returns an error if the store lacks the resource that an operation names by id or by canonical URL.
func (s *Store) checkTarget(q request) error {
	if q.ID != "" {
		_, err := s.find(q.reference(), "")
		return err
	}
	url, _, _ := strings.Cut(q.canonical(), "|")
	if q.Type == "" || url == "" {
		return nil
	}
	exists := false
	err := s.each(q, []string{q.Type}, func(v *version) error {
		found, _ := v.Member("url")
		exists = exists || resource.Text(found) == url
		return nil
	})
	if err == nil && !exists {
		return failure{http.StatusNotFound, "not-found", "There is no " + q.Type + " with the url " + url + "."}
	}
	return err
}

// canonical returns the canonical URL of the resource that an operation on a type is about, from the query or from
// Parameters in the body; empty if there is none.
func (q request) canonical() string {
	names := []string{"url"}
	if q.Type == "CodeSystem" {
		names = append(names, "system") // $lookup and $subsumes (R4 codesystem-operation-lookup.html)
	}
	var body struct {
		Parameter []struct{ Name, ValueURI, ValueCanonical string }
	}
	_ = json.Unmarshal(q.body, &body) // a body in another form names no resource
	for _, name := range names {
		if url := value(q.Parameters, name); url != "" {
			return url
		}
		if i := slices.IndexFunc(body.Parameter, func(p struct{ Name, ValueURI, ValueCanonical string }) bool { return p.Name == name }); i >= 0 {
			return body.Parameter[i].ValueURI + body.Parameter[i].ValueCanonical
		}
	}
	return ""
}
